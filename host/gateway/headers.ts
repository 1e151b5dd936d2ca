// Which headers pass the gateway, in either direction, and what it reads of them. Case, order and duplicates are kept.

import type { IncomingHttpHeaders } from "node:http";
import { fieldOf } from "../transport/answer.js";
import { CREDENTIALS, type Credential } from "./options.js";

/** Meant for one connection only (RFC 9110, 7.6.1). */
const HOP_BY_HOP = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** Set by the transport itself. */
const TRANSPORT = ["host", "content-length", "expect"];

const RESPONSE_DROPPED: ReadonlySet<string> = new Set(HOP_BY_HOP);
const STREAM_DROPPED: ReadonlySet<string> = new Set([...HOP_BY_HOP, "content-length"]);

/** Headers of the gateway's own: a worker cannot set them, a client's are not forwarded. */
const OWN_PREFIX = "x-hawser-";

/** The request headers that no worker gets: of the client's credentials only those that are named are forwarded. */
export function droppedHeaders(forwarded: readonly Credential[]): ReadonlySet<string> {
  const kept = CREDENTIALS.filter((name) => !forwarded.includes(name));
  return new Set([...HOP_BY_HOP, ...TRANSPORT, ...kept]);
}

/** The request headers for a worker, from Node's flat list of names and values, without those in `dropped`. */
export function requestHeaders(raw: readonly string[], dropped: ReadonlySet<string>): string[] {
  return passed(raw, dropped);
}

/** The response headers for the client, from a flat list of names and values; without a length where `isOpen`. */
export function responseHeaders(raw: readonly string[], isOpen = false): string[] {
  return passed(raw, isOpen ? STREAM_DROPPED : RESPONSE_DROPPED);
}

function passed(raw: readonly string[], dropped: ReadonlySet<string>): string[] {
  const nominated = nominatedByConnection(raw);
  const kept: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (dropped.has(name) || name.startsWith(OWN_PREFIX) || nominated?.has(name)) continue;
    kept.push(raw[i]!, raw[i + 1]!);
  }
  return kept;
}

/** Names that a Connection header declares to be for this connection only. */
function nominatedByConnection(raw: readonly string[]): Set<string> | null {
  let names: Set<string> | null = null;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (raw[i]!.length !== 10 || raw[i]!.toLowerCase() !== "connection") continue;
    names ??= new Set();
    for (const name of raw[i + 1]!.toLowerCase().split(",")) names.add(name.trim());
  }
  return names;
}

/** Whether more events may be added to an answer. */
export function isEventStream(fields: readonly string[]): boolean {
  const type = fieldOf(fields, "content-type");
  return type?.startsWith("text/event-stream") === true && !fieldOf(fields, "content-encoding");
}

/** Whether a body comes in a transfer coding that Node takes off only in part: the rest would be passed on as the body. */
export function hasStrangeCoding(headers: IncomingHttpHeaders): boolean {
  const coding = headers["transfer-encoding"];
  return coding !== undefined && coding.trim().toLowerCase() !== "chunked";
}
