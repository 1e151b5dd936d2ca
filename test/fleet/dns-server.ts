// A DNS server that answers what a test tells it to: RFC 1035 over UDP and TCP, answers too long for UDP cut as there.
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { onTestFinished } from "vitest";

export type DnsRecord = { readonly ttl?: number } & (
  | { readonly type: "A" | "AAAA"; readonly address: string }
  | { readonly type: "CNAME"; readonly name: string }
  | {
      readonly type: "SRV";
      readonly name: string;
      readonly port: number;
      readonly priority?: number;
      readonly weight?: number;
    }
);

export interface DnsReply {
  /** 0 unless given. */
  readonly code?: number;
  readonly records?: readonly DnsRecord[];
}

export const SERVFAIL = 2;
export const NXDOMAIN = 3;
export const REFUSED = 5;

const TYPES = { A: 1, CNAME: 5, AAAA: 28, SRV: 33 } as const;
const MAX_UDP_BYTES = 512;
const HEADER_BYTES = 12;

export interface Question {
  readonly name: string;
  readonly type: string;
  readonly transport: "udp" | "tcp";
}

export class DnsServer {
  /** In the order they came, repeated ones too. */
  readonly questions: Question[] = [];
  /** What is answered from now on; null for silence. */
  reply: DnsReply | null = {};
  readonly #udp: Socket;
  readonly #tcp: Server;

  private constructor(udp: Socket, tcp: Server) {
    this.#udp = udp;
    this.#tcp = tcp;
    udp.on("message", (message, { port, address }) => {
      const answer = this.#answer(message, "udp");
      if (answer) udp.send(answer, port, address);
    });
    tcp.on("connection", (socket) => {
      socket.on("error", () => {});
      // A question is far smaller than a segment, and comes in one.
      socket.on("data", (bytes) => {
        const answer = this.#answer(bytes.subarray(2), "tcp");
        if (answer) socket.write(Buffer.concat([uint16(answer.length), answer]));
      });
    });
  }

  /** Listens on 127.0.0.1 until the test ends. */
  static async start(): Promise<DnsServer> {
    for (;;) {
      const tcp = createServer().listen(0, "127.0.0.1");
      await once(tcp, "listening");
      const udp = createSocket("udp4");
      const bound = once(udp, "listening").then(
        () => true,
        () => false,
      );
      udp.bind((tcp.address() as AddressInfo).port, "127.0.0.1");
      if (await bound) {
        const server = new DnsServer(udp, tcp);
        onTestFinished(() => server.stop());
        return server;
      }
      // The port of the one is taken for the other.
      tcp.close();
    }
  }

  get address(): string {
    return `127.0.0.1:${(this.#tcp.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#udp.close();
    this.#tcp.close();
  }

  #answer(message: Buffer, transport: "udp" | "tcp"): Buffer | undefined {
    const { name, type, end } = questionOf(message);
    this.questions.push({ name, type, transport });
    if (this.reply === null) return undefined;
    const { code = 0, records = [] } = this.reply;
    const answers = records.map(recordBytes);
    const whole = Buffer.concat([message.subarray(HEADER_BYTES, end), ...answers]);
    const isCut = transport === "udp" && HEADER_BYTES + whole.length > MAX_UDP_BYTES;
    const flags = 0x8580 | (isCut ? 0x0200 : 0) | code;
    const counts = [1, isCut ? 0 : records.length, 0, 0];
    const header = Buffer.concat([message.subarray(0, 2), ...[flags, ...counts].map(uint16)]);
    return Buffer.concat([header, isCut ? message.subarray(HEADER_BYTES, end) : whole]);
  }
}

function questionOf(message: Buffer): { name: string; type: string; end: number } {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  while (message[at] !== 0) {
    const end = at + 1 + message[at]!;
    labels.push(message.toString("latin1", at + 1, end));
    at = end;
  }
  const number = message.readUInt16BE(at + 1);
  const type = Object.entries(TYPES).find(([, value]) => value === number)?.[0] ?? String(number);
  return { name: labels.join("."), type, end: at + 5 };
}

/** Every record is of the name that is asked for, which stands behind the header. */
function recordBytes(record: DnsRecord): Buffer {
  const data = dataBytes(record);
  const ttl = Buffer.alloc(4);
  ttl.writeUInt32BE(record.ttl ?? 60);
  return Buffer.concat([
    uint16(0xc000 | HEADER_BYTES),
    uint16(TYPES[record.type]),
    uint16(1),
    ttl,
    uint16(data.length),
    data,
  ]);
}

function dataBytes(record: DnsRecord): Buffer {
  switch (record.type) {
    case "A":
      return Buffer.from(record.address.split(".").map(Number));
    case "AAAA":
      return ipv6Bytes(record.address);
    case "CNAME":
      return nameBytes(record.name);
    case "SRV":
      return Buffer.concat([
        ...[record.priority ?? 0, record.weight ?? 0, record.port].map(uint16),
        nameBytes(record.name),
      ]);
  }
}

function ipv6Bytes(address: string): Buffer {
  const [head = "", tail = ""] = address.split("::");
  const parts = (text: string) => text.split(":").filter((part) => part !== "");
  const gap = new Array(8 - parts(head).length - parts(tail).length).fill("0");
  return Buffer.concat(
    [...parts(head), ...gap, ...parts(tail)].map((part) => uint16(Number.parseInt(part, 16))),
  );
}

function nameBytes(name: string): Buffer {
  const labels = name.split(".").filter((label) => label !== "");
  return Buffer.concat([
    ...labels.map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`)),
    Buffer.of(0),
  ]);
}

function uint16(value: number): Buffer {
  return Buffer.of(value >> 8, value & 0xff);
}
