// Opens sockets whose bytes are handed over as they are read, without a stream between.

import { connect as connectTcp, isIP, type Socket, type SocketConnectOpts } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";

/** Where a pool's connections lead. */
export interface Target {
  /** A name or an address, without brackets. */
  readonly host: string;
  readonly port: number;
  readonly isSecure: boolean;
  /** Of the last connection: it makes the next one's handshake shorter. */
  session: Buffer | undefined;
}

/** Takes the first `size` bytes, which stand there only during the call. Returns true: `false` would pause the socket. */
export type Read = (size: number, bytes: Uint8Array) => true;

const READ_BYTES = 65_536;
/** What one decryption gives at most. */
const TLS_READ_BYTES = 16_384;
/** Milliseconds of silence after which the system asks whether the other side is still there. */
const PROBE_MS = 60_000;

/** One for all: what is read is used up before anything else is read. */
const shared = Buffer.allocUnsafeSlow(READ_BYTES);

/** The target of an http or https URL. */
export function targetOf({ protocol, hostname, port }: URL): Target {
  const isSecure = protocol === "https:";
  return {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port: port === "" ? (isSecure ? 443 : 80) : Number(port),
    isSecure,
    session: undefined,
  };
}

/** Begins to open a connection; `onOpen` is called when it can be written to. */
export function openSocket(target: Target, read: Read, onOpen: () => void): Socket {
  const { host, port, isSecure } = target;
  const buffer = isSecure ? Buffer.allocUnsafeSlow(TLS_READ_BYTES) : shared;
  const onread = { buffer, callback: read };
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: PROBE_MS, onread };
  if (!isSecure) return connectTcp(options as SocketConnectOpts, onOpen);
  const { session } = target;
  const secure: ConnectionOptions = {
    ...options,
    ALPNProtocols: ["http/1.1"],
    ...(isIP(host) === 0 && { servername: host }),
    ...(session && { session }),
  };
  return connectTls(secure, onOpen).on("session", (fresh: Buffer) => {
    target.session = fresh;
  });
}
