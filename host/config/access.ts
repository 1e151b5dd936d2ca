// The keys by which clients are known: their shape, their rules, and what they come to. No message repeats what may be a key
// itself that stands where its hash belongs.
import Type from "typebox";
import type { AccessOptions } from "../gateway/options.js";
import type { Path } from "../yaml/parse.js";
import { pathText } from "../yaml/words.js";
import { list, mapping, type Raw, type Remarks } from "./remarks.js";

/** What a key may be named. */
export const ACCESS_NAME_PATTERN = "^[A-Za-z0-9._-]{1,64}$";
/** The same in words. */
export const ACCESS_NAME_FORM = "1 to 64 letters, digits, dots, dashes or underscores";

const MAX_KEYS = 256;
const MAX_COUNT = 2 ** 31 - 1;
const HASH = /^[0-9a-f]{64}$/;

const ACCESS_FORM = "a mapping with the list keys";
const KEYS_FORM = `a list of 1 to ${MAX_KEYS} access keys`;
const KEY_FORM = "a mapping with a name and a sha256";
const HASH_FORM =
  "the SHA-256 of the key as hawser key --hash prints it, 64 lower-case hex digits, never the key itself";

// Scalars pass the shape everywhere, which would quote them: they are refused by checkAccess, which does not.
const scalars = ["string", "number", "boolean"];

/** A key as the file has it. */
export interface RawKey {
  readonly name: string;
  readonly sha256: string;
  readonly max_in_flight?: number;
  readonly requests_per_minute?: number;
}

/** `access` as the file has it. */
export interface RawAccess {
  readonly keys: readonly RawKey[];
}

const Count = Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_COUNT }));

const KeySchema = Type.Unsafe<RawKey>({
  type: ["object", ...scalars],
  properties: {
    name: Type.String({ pattern: ACCESS_NAME_PATTERN, allowed: ACCESS_NAME_FORM }),
    sha256: { type: scalars, allowed: HASH_FORM },
    max_in_flight: Count,
    requests_per_minute: Count,
  },
  required: ["name", "sha256"],
  ...{ additionalProperties: false, secret: true, allowed: KEY_FORM },
});

/** The shape of `access`. */
export const AccessSchema = Type.Unsafe<RawAccess>({
  type: ["object", ...scalars],
  properties: {
    keys: {
      type: ["array", ...scalars],
      ...{ items: KeySchema, minItems: 1, maxItems: MAX_KEYS, allowed: KEYS_FORM },
    },
  },
  required: ["keys"],
  ...{ additionalProperties: false, secret: true, allowed: ACCESS_FORM },
});

/** Applies the rules of `access` to the root of a config. */
export function checkAccess(root: Raw, remarks: Remarks): void {
  const { keys } = mapping(root.access);
  refuseLiteral(["access"], root.access, ACCESS_FORM, remarks);
  refuseLiteral(["access", "keys"], keys, KEYS_FORM, remarks);
  const names = new Map<string, Path>();
  const hashes = new Map<unknown, Path>();
  for (const [index, key] of list(keys).entries()) {
    const path = ["access", "keys", index];
    const { name, sha256 } = mapping(key);
    refuseLiteral(path, key, KEY_FORM, remarks);
    remarks.unique([...path, "name"], name, names);
    checkHash([...path, "sha256"], sha256, hashes, remarks);
  }
  if (root.access !== undefined) warnOfForwarding(root, remarks);
}

function refuseLiteral(path: Path, value: unknown, form: string, remarks: Remarks): void {
  if (isScalar(value)) remarks.mistake(path, "value", `${pathText(path)} must be ${form}, found a literal`);
}

function checkHash(path: Path, value: unknown, seen: Map<unknown, Path>, remarks: Remarks): void {
  if (!isScalar(value)) return;
  const refuse = (message: string) => remarks.mistake(path, "value", `${pathText(path)} ${message}`);
  const first = seen.get(value);
  if (typeof value !== "string") refuse(`must be ${HASH_FORM}, found a ${typeof value}`);
  else if (!HASH.test(value)) refuse(`must be ${HASH_FORM}, found ${strangeHash(value)}`);
  else if (first) refuse(`repeats ${pathText(first)}, at line ${remarks.lineOf(first)}`);
  else seen.set(value, path);
}

function strangeHash(text: string): string {
  if (HASH.test(text.toLowerCase())) return "upper-case ones";
  return `${text.length} other characters`;
}

function warnOfForwarding(root: Raw, remarks: Remarks): void {
  for (const [index, name] of list(root.forward_credentials).entries()) {
    if (name !== "authorization" && name !== "x-api-key") continue;
    const path = ["forward_credentials", index];
    const message = `${pathText(path)} shows workers the access keys that clients send as ${name}`;
    remarks.warning(path, "value", message);
  }
}

function isScalar(value: unknown): boolean {
  return scalars.includes(typeof value);
}

/** What an `access` whose shape is right comes to. */
export function accessOptions(raw: RawAccess | undefined): AccessOptions | undefined {
  const without = Number.POSITIVE_INFINITY;
  return (
    raw && {
      keys: raw.keys.map(({ name, sha256, max_in_flight, requests_per_minute }) => ({
        ...{ name, sha256 },
        maxInFlight: max_in_flight ?? without,
        requestsPerMinute: requests_per_minute ?? without,
      })),
    }
  );
}
