// Secrets: a config names where one is, in a variable or a file, and never holds it. No message repeats one, nor
// a literal that stands in its place.
import { readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import Type from "typebox";
import type { Path } from "../yaml/parse.js";
import { causeOf } from "../yaml/read.js";
import { pathText, quote } from "../yaml/words.js";
import { isMapping, type Raw, type Remarks } from "./remarks.js";

/** The variables of a process by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Where the secrets of one config file are looked up. */
export interface SecretPlaces {
  readonly environment: Environment;
  /** The config file: paths of secrets are relative to its directory. */
  readonly file: string;
}

/** A secret, and in words where it came from: `the environment variable NAME`, `the file "PATH"`. */
export interface Secret {
  readonly text: string;
  readonly origin: string;
}

/** A secret, and the value of the config that names its place. */
export interface NamedSecret extends Secret {
  readonly path: Path;
}

const FORMS = "{ env: NAME } or { file: PATH }";
const MAX_FILE_BYTES = 65_536;

// Scalars of any kind pass the shape, which would quote them: they are refused by readSecret, which does not.
const scalars = ["string", "number", "boolean"];

/** The shape of a secret; its content is checked by `readSecret`. */
export const SecretSchema = Type.Unsafe<{ readonly env?: string; readonly file?: string }>({
  type: ["object", ...scalars],
  properties: {
    env: { type: scalars, allowed: "the name of an environment variable" },
    file: { type: scalars, allowed: "the path of a file" },
  },
  ...{ additionalProperties: false, secret: true },
  allowed: FORMS,
});

/**
 * The secret that the value at `path` names. Undefined where it cannot be had; why is a mistake, here or of the
 * value's shape.
 */
export function readSecret(
  path: Path,
  value: unknown,
  places: SecretPlaces,
  remarks: Remarks,
): NamedSecret | undefined {
  const refuse = (at: Path, message: string) => remarks.mistake(at, "value", `${pathText(at)} ${message}`);
  if (!isMapping(value)) {
    const found = "found a literal: the config holds no secret itself";
    if (isScalar(value)) refuse(path, `must be ${FORMS}, ${found}${variableHint(value)}`);
    return undefined;
  }
  const form = formOf(value);
  if (form === undefined) return undefined;
  if (typeof form !== "string") {
    refuse(path, form.breach);
    return undefined;
  }
  const found = form === "env" ? fromVariable(value.env, places) : fromFile(value.file, places);
  const place = [...path, form];
  if (found === undefined || "text" in found) return found && { ...found, path: place };
  refuse(place, found.breach);
  return undefined;
}

/** Why a secret cannot be carried by a header, in words that do not tell it; undefined where it can. */
export function headerBreach(text: string): string | undefined {
  if (/[\r\n]/.test(text)) return "contains a line break";
  if (/[^ -~]/.test(text)) return "contains a character that is not printable ASCII";
  return text.includes(" ") ? "contains a space" : undefined;
}

/** What looks like a variable to be replaced is no secret: its name may be told. */
function variableHint(value: unknown): string {
  const name = /^\$\{([A-Za-z_][A-Za-z0-9_]{0,254})\}$/.exec(String(value))?.[1];
  return name === undefined ? "" : ` (write { env: ${name} })`;
}

interface Breach {
  /** To follow the name of what is wrong. */
  readonly breach: string;
}

function formOf(value: Raw): "env" | "file" | Breach | undefined {
  const { env, file } = value;
  if (env !== undefined && file !== undefined) return { breach: `must be either ${FORMS}, found both` };
  if (env !== undefined) return "env";
  if (file !== undefined) return "file";
  // A key that nobody knows is told as such, and may well be meant for one of these.
  return Object.keys(value).length > 0 ? undefined : { breach: `must be ${FORMS}, found an empty mapping` };
}

function fromVariable(name: unknown, { environment }: SecretPlaces): Secret | Breach | undefined {
  if (!isScalar(name)) return undefined;
  if (typeof name !== "string" || !/^[A-Za-z_][A-Za-z0-9_]{0,254}$/.test(name)) {
    const form = "must be the name of an environment variable, made of letters, digits and underscores";
    return { breach: name === "" ? `${form}, found ""` : form };
  }
  const text = Object.hasOwn(environment, name) ? environment[name] : undefined;
  const origin = `the environment variable ${name}`;
  if (text === undefined) return { breach: `names ${origin}, which is not set` };
  return text === "" ? { breach: `names ${origin}, which is empty` } : { text, origin };
}

function fromFile(name: unknown, { file }: SecretPlaces): Secret | Breach | undefined {
  if (!isScalar(name)) return undefined;
  if (typeof name !== "string") return { breach: "must be the path of a file" };
  if (name === "") return { breach: 'must be the path of a file, found ""' };
  const path = resolve(dirname(file), name);
  const origin = `the file ${quote(path)}`;
  const read = contentOf(path);
  if ("breach" in read) return { breach: `names ${origin}, which cannot be read: ${read.breach}` };
  // Editors and `echo` end a file with a newline that nobody means.
  const text = read.text.replace(/\r?\n$/, "");
  return text === "" ? { breach: `names ${origin}, which is empty` } : { text, origin };
}

/** The text of a small regular file: a pipe or a device might never end. */
function contentOf(path: string): { readonly text: string } | Breach {
  let bytes: Uint8Array;
  try {
    const status = statSync(path);
    if (status.isDirectory()) return { breach: "it is a directory" };
    if (!status.isFile()) return { breach: "it is not a regular file" };
    if (status.size > MAX_FILE_BYTES) return { breach: `it has more than ${MAX_FILE_BYTES} bytes` };
    bytes = readFileSync(path);
  } catch (error) {
    return { breach: causeOf(error) };
  }
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    return { breach: "it is not UTF-8 text" };
  }
}

function isScalar(value: unknown): boolean {
  return scalars.includes(typeof value);
}
