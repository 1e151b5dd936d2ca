// `hawser key`: an access key for a client, and the line by which the config knows it.
import { randomBytes } from "node:crypto";
import { Command, InvalidArgumentError } from "commander";
import { ACCESS_NAME_FORM, ACCESS_NAME_PATTERN } from "../config/access.js";
import { headerBreach } from "../config/secret.js";
import { hashOfKey, MAX_ACCESS_KEY_LENGTH } from "../gateway/access.js";

const PREFIX = "hwsr_";
/** More than can be guessed from a hash. */
const KEY_BYTES = 32;
/** What is shorter may be found by trying. */
const MIN_LENGTH = 16;

/** The `key` subcommand. Exit code 1 where the key on stdin is none that a client could show. */
export function keyCommand(): Command {
  return new Command("key")
    .description("make an access key for a client: the key, shown once, and its line for access.keys")
    .argument("[name]", "the key's name", nameOfKey, "client")
    .option("--hash", "read a key from stdin, and print its line alone")
    .action(async (name: string, { hash }: { hash?: boolean }, command: Command) => {
      const key = hash ? await givenKey(command) : PREFIX + randomBytes(KEY_BYTES).toString("base64url");
      if (!hash) process.stdout.write(`${key}\n`);
      // In quotes: a name may look like a number.
      process.stdout.write(`- { name: "${name}", sha256: "${hashOfKey(key).toString("hex")}" }\n`);
    });
}

function nameOfKey(text: string): string {
  if (new RegExp(ACCESS_NAME_PATTERN).test(text)) return text;
  throw new InvalidArgumentError(`It must be ${ACCESS_NAME_FORM}.`);
}

/** The key on stdin, without the newline behind it. */
async function givenKey(command: Command): Promise<string> {
  const key = (await textOf(process.stdin)).replace(/\r?\n$/, "");
  const breach = keyBreach(key);
  if (breach === undefined) return key;
  const form = `${MIN_LENGTH} to ${MAX_ACCESS_KEY_LENGTH} printable ASCII characters without spaces`;
  command.error(`error: the key on stdin must be ${form}, but it ${breach}`, { exitCode: 1 });
}

/** What is wrong with a key, in words that do not tell it. */
function keyBreach(key: string): string | undefined {
  const { length } = key;
  if (length > MAX_ACCESS_KEY_LENGTH) return "is longer";
  if (length === 0) return "is empty";
  return headerBreach(key) ?? (length < MIN_LENGTH ? `has ${length}` : undefined);
}

/** The beginning of a text, up to somewhat more than the longest key. */
async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_ACCESS_KEY_LENGTH + 2) break;
  }
  return Buffer.concat(chunks).toString();
}
