// Workers that a test tells one by one what to do with a request, behind a gateway.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { BindingView } from "../../host/routing/bindings.js";
import type { Worker } from "../../host/routing/worker.js";
import { post } from "./client.js";
import { type DataPlaneView, dataPlaneOf } from "./data-plane.js";
import {
  type GatewayFixture,
  gateway,
  type RunningGateway,
  stop,
  type Upstream,
  until,
  upstream,
} from "./fixture.js";

export const CHAT = "/v1/chat/completions";
/** Between two polls: none comes within a test. */
const AN_HOUR = 3_600_000;

/** A POST as it came to a worker, its body read. */
export interface Asked {
  readonly worker: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: Buffer;
  /** Whether its connection is gone. */
  isGone: boolean;
}

/** What a worker does with a request. */
export type Deed = (asked: Asked) => void;

/** Leaves it to the test. */
export const hold: Deed = () => {};

/** Breaks the connection before any byte of an answer. */
export const reset: Deed = ({ request }) => void request.socket.resetAndDestroy();

/** Answers, with a stream where it is asked for one, and says who it is. */
export const serve: Deed = ({ worker, response, body }) => {
  const isStream = JSON.parse(body.toString()).stream === true;
  response.setHeader("content-type", isStream ? "text/event-stream" : "application/json");
  response.end(isStream ? `data: {"by":"${worker}"}\n\ndata: [DONE]\n\n` : `{"by":"${worker}"}`);
};

/** Answers with an error of the worker's own. */
export function refuse(status: number, headers: Record<string, string> = {}): Deed {
  return ({ worker, response }) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(`{"error":{"message":"${worker} is full"}}`);
  };
}

/** Does one deed after the other, the last of them from then on. */
export function inTurn(...deeds: Deed[]): Deed {
  return (asked) => (deeds.length > 1 ? deeds.shift()! : deeds[0]!)(asked);
}

/** A gateway over workers w0, w1 ... and those workers. Idle ones of the same load are chosen in that order. */
export class Crew {
  /** What each worker does; assign to change it. */
  readonly deeds: Deed[];
  /** The requests that reached a worker, in that order. */
  readonly asked: Asked[] = [];
  upstreams: readonly Upstream[] = [];
  running!: RunningGateway;

  constructor(deeds: readonly Deed[]) {
    this.deeds = [...deeds];
  }

  /** The workers that were asked, in that order: `w0 w1`. */
  get order(): string {
    return this.asked.map(({ worker }) => worker).join(" ");
  }

  /** Requests in flight at each worker: `0 1`. */
  get loads(): string {
    const { workers } = this.running.router.status();
    return workers.map(({ active_requests }) => active_requests).join(" ");
  }

  /** Sends requests one after the other, each when the one before has got its place, at a worker or in line. */
  async inLine(keys: readonly string[]): Promise<Promise<string>[]> {
    const said: Promise<string>[] = [];
    for (const key of keys) {
      const places = this.asked.length + this.waiting;
      said.push(this.say(key));
      await until(() => this.asked.length + this.waiting > places);
    }
    return said;
  }

  /** Requests that wait for a worker with room. */
  get waiting(): number {
    return this.running.gateway.waiting;
  }

  /** Posts and tells what came of it: `200 w1 place`, and the body where it is an error. */
  async say(key?: string, members: object = {}, headers: Record<string, string> = {}): Promise<string> {
    const body = { model: "m", messages: [], ...members };
    const session = key === undefined ? {} : { "x-session-id": key };
    const reply = await post(this.running.url + CHAT, body, { ...session, ...headers });
    const { "x-hawser-worker": worker, "x-hawser-decision": decision } = reply.headers;
    const words = [reply.status, worker, decision, reply.status >= 400 ? reply.body : undefined];
    return words.filter((word) => word !== undefined).join(" ");
  }

  /** Binds sessions to a worker, as if it had served each once. */
  bind(worker: string, ...keys: string[]): void {
    for (const key of keys) {
      const lease = this.running.router.acquire({ key, model: "m", pin: worker });
      lease.commit();
      lease.release();
    }
  }

  /** The binding of a session. */
  binding(key: string): BindingView | undefined {
    const { router } = this.running;
    return router.session(router.sessionIdOf(key, "m"));
  }

  worker(id: string): Worker {
    return [...this.running.router.workers].find((worker) => worker.id === id)!;
  }

  /** Has a worker refuse connections. The gateway does not know before it tries. */
  async kill(id: string): Promise<void> {
    await stop(this.upstreams[Number(id.slice(1))]!.server);
  }

  dataPlane(): Promise<DataPlaneView> {
    return dataPlaneOf(this.running.url);
  }
}

/** Starts a worker for each deed; a gateway is to be put over them. */
export async function workersOf(deeds: readonly Deed[]): Promise<Crew> {
  const self = new Crew(deeds);
  self.upstreams = await Promise.all(
    deeds.map((_, i) =>
      upstream((request, response, body) => {
        const asked: Asked = { worker: `w${i}`, request, response, body, isGone: false };
        response.on("close", () => {
          asked.isGone = !response.writableFinished;
        });
        self.asked.push(asked);
        self.deeds[i]!(asked);
      }),
    ),
  );
  return self;
}

/** Starts a worker for each deed, and a gateway over them. */
export async function crew(
  deeds: readonly Deed[],
  options: Omit<GatewayFixture, "urls"> = {},
): Promise<Crew> {
  const self = await workersOf(deeds);
  const urls = self.upstreams.map(({ url }) => url);
  self.running = await gateway({
    ...options,
    health: { intervalMs: AN_HOUR, ...options.health },
    urls,
  });
  return self;
}
