// Lines on their way into a file that is rotated. Nobody ever waits for the disk: what it cannot take is dropped and counted.

import { once } from "node:events";
import { open, rm, stat } from "node:fs/promises";
import { createStream, type RotatingFileStream } from "rotating-file-stream";
import type { DecisionLogOptions } from "./options.js";

/** Most characters that wait to be written, about as many bytes. */
const MAX_WAITING = 8 * 2 ** 20;
/** Written at once, so that a file is not much longer than it may be. */
const BATCH = 65_536;
/** After a failure the file is let alone for so long. */
const RETRY_MS = 1_000;
const LINE_FEED = 0x0a;

export type LineFileOptions = Pick<DecisionLogOptions, "file" | "maxBytes" | "maxFiles">;

/** By file, when the last that was made for it has closed it: two that rotate one file would rename each other's. */
const closings = new Map<string, Promise<void>>();

/** One file, made where it is missing, with the directories that lead to it. Its lines go behind those that are there. */
export class LineFile {
  /** Lines that are in the file. */
  written = 0;
  /** Lines that are not and will not be. */
  dropped = 0;
  readonly #options: LineFileOptions;
  readonly #onError: (error: Error) => void;
  readonly #retryMs: number;
  readonly #done: Promise<void>;
  #lines: string[] = [];
  #waiting = 0;
  #stream: RotatingFileStream | null = null;
  /** Whether the last attempt failed, which is told already. */
  #isBroken = false;
  #isClosing = false;
  /** Ends the present pause. */
  #wake: () => void = nothing;
  #isResting = false;

  /**
   * Begins when every other that was made for the same file is closed. `onError` hears of a file that cannot be written, once
   * until it could be again.
   */
  constructor(options: LineFileOptions, onError: (error: Error) => void, retryMs = RETRY_MS) {
    this.#options = options;
    this.#onError = onError;
    this.#retryMs = retryMs;
    const { file } = options;
    const done = this.#run(closings.get(file));
    this.#done = done;
    closings.set(file, done);
    void done.then(() => {
      if (closings.get(file) === done) closings.delete(file);
    });
  }

  /** Adds a line, which ends in a line feed; false where it was dropped. */
  add(line: string): boolean {
    if (this.#isClosing || this.#waiting + line.length > MAX_WAITING) {
      this.dropped++;
      return false;
    }
    this.#lines.push(line);
    this.#waiting += line.length;
    if (!this.#isResting) this.#wake();
    return true;
  }

  /** Writes what waits, where that can be, and closes the file. Resolves when that is done; never rejects. */
  close(): Promise<void> {
    this.#isClosing = true;
    this.#wake();
    return this.#done;
  }

  async #run(before: Promise<void> | undefined): Promise<void> {
    await before;
    while (!this.#isClosing || this.#lines.length > 0) {
      if (this.#lines.length === 0) await this.#pause();
      else if (!(await this.#write())) await this.#rest();
    }
    await this.#endStream();
  }

  /** Writes a batch; false where that failed. */
  async #write(): Promise<boolean> {
    let lines: string[] = [];
    try {
      this.#stream ??= await this.#open();
      lines = this.#take();
      await write(this.#stream, lines.join(""));
      this.written += lines.length;
      this.#isBroken = false;
      return true;
    } catch (error) {
      this.dropped += lines.length;
      this.#stream = null;
      if (!this.#isBroken) this.#onError(error as Error);
      this.#isBroken = true;
      return false;
    }
  }

  #take(): string[] {
    const most = Math.min(BATCH, this.#options.maxBytes);
    let [count, size] = [0, 0];
    do size += this.#lines[count++]!.length;
    while (count < this.#lines.length && size + this.#lines[count]!.length <= most);
    this.#waiting -= size;
    return this.#lines.splice(0, count);
  }

  async #open(): Promise<RotatingFileStream> {
    const { file, maxBytes, maxFiles } = this.#options;
    const isWhole = await endsWithLine(file);
    const rotate = Math.max(1, maxFiles - 1);
    const stream = createStream(file, { size: `${maxBytes}B`, rotate, mode: 0o600 });
    // What fails is told by what was waited for.
    stream.on("error", nothing);
    if (maxFiles === 1) stream.on("rotated", (last) => void rm(last, { force: true }).catch(nothing));
    await once(stream, "open");
    if (!isWhole) await write(stream, "\n");
    return stream;
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** After a failure: until another attempt is due. Who closes does not wait, and gives up what is left. */
  async #rest(): Promise<void> {
    if (this.#isClosing) {
      this.dropped += this.#lines.length;
      this.#lines = [];
      return;
    }
    this.#isResting = true;
    const pause = this.#pause();
    const timer = setTimeout(this.#wake, this.#retryMs).unref();
    await pause;
    clearTimeout(timer);
    this.#isResting = false;
  }

  async #endStream(): Promise<void> {
    const stream = this.#stream;
    if (!stream) return;
    const closed = once(stream, "close");
    stream.end();
    await closed.catch(nothing);
  }
}

function nothing(): void {}

function write(stream: RotatingFileStream, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

/** False where a process that died, or a full disk, left half a line, which the next is not to be part of. */
async function endsWithLine(path: string): Promise<boolean> {
  try {
    const stats = await stat(path);
    // Reading a pipe might never end.
    if (!stats.isFile() || stats.size === 0) return true;
    return (await lastByte(path, stats.size)) === LINE_FEED;
  } catch {
    // A file that cannot be read may be one that can be written.
    return true;
  }
}

async function lastByte(path: string, size: number): Promise<number> {
  const file = await open(path, "r");
  try {
    const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
    return buffer[0]!;
  } finally {
    await file.close();
  }
}
