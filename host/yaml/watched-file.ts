// A small text file that may change at any time: whether it has another content, and has stood still.
import type { BigIntStats } from "node:fs";
import { constants, type FileHandle, open, stat } from "node:fs/promises";
import { causeOf } from "./read.js";

/** Looks after which a file that changes at each of them is read all the same. */
const MAX_RESTLESS = 10;

/** What a look at a file came to. */
export type FileLook = "unchanged" | "unsettled" | { readonly text: string };

/**
 * One file, whoever writes it: in place, renamed over, or behind another symbolic link. It is looked at as often as the
 * caller likes, one look at a time: notices of the kernel would follow one inode or one directory, and miss the swap of
 * a link further up, which is how Kubernetes updates a ConfigMap, and what another machine wrote.
 */
export class WatchedFile {
  readonly #path: string;
  readonly #maxBytes: number;
  #isFirst = true;
  /** The file's stamp when it was last looked at, and that of the content that was last read. */
  #seen: string | undefined;
  #read: string | undefined;
  #restless = 0;

  /** A file of more than `maxBytes` is not read. */
  constructor(path: string, maxBytes: number) {
    this.#path = path;
    this.#maxBytes = maxBytes;
  }

  /**
   * Looks whether there is another content than the one that was read last; the first look takes what is there. Throws an
   * Error whose message is the cause where it cannot be read. What is not UTF-8 throws once; any other cause is met again
   * at the next look, and what comes after it is read even where it is what was there before.
   */
  async look(): Promise<FileLook> {
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    const stamp = await this.#orForget(stampAt(this.#path));
    if (stamp === this.#read) {
      this.#restless = 0;
      return "unchanged";
    }
    // Half of a YAML file may be a good one: what is written in place is read when it has stood still for a while.
    const isSettled = isFirst || stamp === this.#seen;
    this.#seen = stamp;
    this.#restless = isSettled ? 0 : this.#restless + 1;
    if (!isSettled && this.#restless <= MAX_RESTLESS) return "unsettled";
    const content = await this.#orForget(contentOf(this.#path, this.#maxBytes));
    if (content.stamp === undefined) return "unsettled";
    if (content.stamp === this.#read) return "unchanged";
    // Whatever comes of it, the same content is not read twice.
    this.#read = content.stamp;
    return { text: decode(content.bytes) };
  }

  /**
   * Reads it now, settled or not; a look that finds the same content is `unchanged`. Throws as `look` does. Where it is
   * being written meanwhile, what was read may be a part, and a look reads it again.
   */
  async read(): Promise<string> {
    this.#isFirst = false;
    const { bytes, stamp } = await this.#orForget(contentOf(this.#path, this.#maxBytes));
    this.#read = stamp;
    return decode(bytes);
  }

  /** What was missed is read again when it comes back, the same or not. */
  async #orForget<T>(reading: Promise<T>): Promise<T> {
    try {
      return await reading;
    } catch (error) {
      this.#read = undefined;
      throw new Error(causeOf(error));
    }
  }
}

async function stampAt(path: string): Promise<string> {
  return stampOf(await stat(path, { bigint: true }));
}

/** What differs wherever the content may differ, be it written in place, renamed over, or behind another link. */
function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

/** The content of a small regular file, and its stamp, undefined where it changed meanwhile. Throws where there is none. */
async function contentOf(
  path: string,
  maxBytes: number,
): Promise<{ bytes: Uint8Array; stamp: string | undefined }> {
  // A pipe would block until somebody writes.
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const before = await checkedStamp(handle, maxBytes);
    const bytes = await handle.readFile();
    const after = await checkedStamp(handle, maxBytes);
    return { bytes, stamp: before === after ? after : undefined };
  } finally {
    await handle.close();
  }
}

async function checkedStamp(handle: FileHandle, maxBytes: number): Promise<string> {
  const status = await handle.stat({ bigint: true });
  if (status.isDirectory()) throw new Error("it is a directory");
  if (!status.isFile()) throw new Error("it is not a regular file");
  if (status.size > maxBytes) throw new Error(`it has ${status.size} bytes, at most ${maxBytes} are allowed`);
  return stampOf(status);
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not UTF-8 text");
  }
}
