// The values that can name a session: of headers and of a body, in one form, so that the same text is the same session.

import { isUtf8 } from "node:buffer";
import type { JsonScan } from "./json-scan.js";

/** Headers by lower-case name, as Node gives them. */
export type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Most bytes of a parent's id and of an answer's. */
const MAX_ID_BYTES = 256;

/** A header's value, undefined where it is missing or blank. Bytes that are UTF-8 are read as UTF-8, others as Latin-1. */
export function headerValue(headers: Headers, name: string): string | undefined {
  const given = headers[name];
  const text = trimmed(typeof given === "string" ? given : given?.[0]);
  return text !== undefined && /[^\0-\x7f]/.test(text) ? unicode(text) : text;
}

/** A body's string or integer, undefined where it is missing, blank, something else, or not well-formed UTF-16. */
export function bodyValue(scan: JsonScan, slot: number): string | undefined {
  return trimmedJson(scan.string(slot)) ?? scan.integer(slot);
}

/** A string of a JSON text, undefined where it is blank or not well-formed UTF-16. */
export function trimmedJson(text: string | undefined): string | undefined {
  return text === undefined || /\p{Surrogate}/u.test(text) ? undefined : trimmed(text);
}

/** `id`, unless it is longer than an id of a parent or an answer may be. */
export function shortId(id: string | undefined): string | undefined {
  return id !== undefined && Buffer.byteLength(id) <= MAX_ID_BYTES ? id : undefined;
}

/** Only what HTTP calls white space does not count: any other byte belongs to the value. */
function trimmed(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  let start = 0;
  let end = text.length;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return start === end ? undefined : text.slice(start, end);
}

function isSpace(unit: number): boolean {
  return unit === 0x20 || unit === 0x09;
}

/** Node gives the bytes of a header as Latin-1, whatever they are; a string with more than bytes in it is not Node's. */
function unicode(text: string): string {
  if (/[^\0-\xff]/.test(text)) return text;
  const bytes = Buffer.from(text, "latin1");
  return isUtf8(bytes) ? bytes.toString() : text;
}
