// Lines on their way into a file that is rotated. Nobody ever waits for the disk: what it cannot take is dropped and counted.

import { once } from "node:events";
import { open, rm, stat } from "node:fs/promises";
import { createStream, type RotatingFileStream } from "rotating-file-stream";
import type { DecisionLogOptions } from "./options.js";

/** Most characters that wait to be written, about as many bytes. */
const MAX_WAITING = 8 * 2 ** 20;
/** Written at once, so that a file is not much longer than it may be. */
const BATCH = 65_536;
const LINE_FEED = 0x0a;

export type LineFileOptions = Pick<DecisionLogOptions, "file" | "maxBytes" | "maxFiles">;

/** Milliseconds. */
export interface Pace {
  /** After a failure the file is let alone for so long. */
  readonly retryMs: number;
  /** Before lines are written it is seen whether the file is still in its place, where that is so long ago. */
  readonly lookMs: number;
  /** Who closes waits for the disk at most so long. */
  readonly closeMs: number;
}

const PACE: Pace = { retryMs: 1_000, lookMs: 5_000, closeMs: 5_000 };

/** By file, when the last that was made for it has closed it: two that rotate one file would rename each other's. */
const closings = new Map<string, Promise<void>>();

/**
 * One file, made where it is missing, with the directories that lead to it, and made anew some seconds after it was taken away.
 * Its lines go behind those that are there.
 */
export class LineFile {
  /** Lines that are in the file. */
  written = 0;
  /** Lines that are not and will not be. */
  dropped = 0;
  readonly #options: LineFileOptions;
  readonly #onError: (error: Error) => void;
  readonly #pace: Pace;
  readonly #done: Promise<void>;
  #lines: string[] = [];
  #waiting = 0;
  /** Lines on their way to the disk. */
  #underWay = 0;
  #stream: RotatingFileStream | null = null;
  /** Which file the stream writes to, and when that was last seen in its place. */
  #opened: Promise<string> | null = null;
  #seenAt = 0;
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
  constructor(options: LineFileOptions, onError: (error: Error) => void, pace: Partial<Pace> = {}) {
    this.#options = options;
    this.#onError = onError;
    this.#pace = { ...PACE, ...pace };
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

  /**
   * Writes what waits, where that can be, and closes the file. Resolves when that is done, or the disk has taken too long, with
   * every line counted that was added before; never rejects.
   */
  close(): Promise<void> {
    this.#isClosing = true;
    this.#wake();
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#giveUp();
        resolve();
      }, this.#pace.closeMs);
      void this.#done.then(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** What the disk has not taken by now counts as lost, even if it should take some of it later. */
  #giveUp(): void {
    this.dropped += this.#lines.length + this.#underWay;
    this.#lines = [];
    this.#underWay = 0;
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
    try {
      const stream = await this.#current();
      // Meanwhile it may all have been given up.
      if (this.#lines.length === 0) return true;
      const lines = this.#take();
      this.#underWay = lines.length;
      await write(stream, lines.join(""));
      this.written += this.#underWay;
      this.#isBroken = false;
      return true;
    } catch (error) {
      this.dropped += this.#underWay;
      this.#stream = null;
      if (!this.#isBroken) this.#onError(error as Error);
      this.#isBroken = true;
      return false;
    } finally {
      this.#underWay = 0;
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

  /** The stream to the file at the path, opened where there is none yet, or where another file is there now, or none. */
  async #current(): Promise<RotatingFileStream> {
    if (this.#stream && performance.now() - this.#seenAt >= this.#pace.lookMs) {
      if ((await this.#opened) !== (await identityOf(this.#options.file))) await this.#endStream();
      this.#seenAt = performance.now();
    }
    this.#stream ??= await this.#open();
    return this.#stream;
  }

  async #open(): Promise<RotatingFileStream> {
    const { file, maxBytes, maxFiles } = this.#options;
    const isWhole = await endsWithLine(file);
    const rotate = Math.max(1, maxFiles - 1);
    const stream = createStream(file, { size: `${maxBytes}B`, rotate, mode: 0o600 });
    // What fails is told by what was waited for.
    stream.on("error", nothing);
    // Also when it is rotated.
    stream.on("open", () => {
      this.#opened = identityOf(file);
      this.#seenAt = performance.now();
    });
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
      this.#giveUp();
      return;
    }
    this.#isResting = true;
    const pause = this.#pause();
    const timer = setTimeout(this.#wake, this.#pace.retryMs).unref();
    await pause;
    clearTimeout(timer);
    this.#isResting = false;
  }

  async #endStream(): Promise<void> {
    const stream = this.#stream;
    if (!stream) return;
    this.#stream = null;
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

/** The same for a path as long as one file is there; "" where none can be seen. */
async function identityOf(path: string): Promise<string> {
  try {
    const { dev, ino } = await stat(path, { bigint: true });
    return `${dev} ${ino}`;
  } catch {
    return "";
  }
}

/**
 * False where a process that died, or a full disk, left half a line, which the next is not to be part of. Throws for what is no
 * regular file: opening a pipe might never end.
 */
async function endsWithLine(path: string): Promise<boolean> {
  const stats = await stat(path).catch(nothing);
  // What is in the way of it is told when it is opened.
  if (!stats) return true;
  if (!stats.isFile()) throw new Error(`${path} is no regular file`);
  if (stats.size === 0) return true;
  // A file that cannot be read may be one that can be written.
  return lastByte(path, stats.size).then(
    (byte) => byte === LINE_FEED,
    () => true,
  );
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
