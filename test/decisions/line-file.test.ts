import { execFileSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LineFile, type Pace } from "../../host/decisions/line-file.js";
import { directoryOf } from "../fixtures/directory.js";

const MANY = { maxBytes: 2 ** 20, maxFiles: 8 };
const never = (error: Error) => {
  throw error;
};

/** The lines of a log and of those before it, in the order in which they were written. */
function linesOf(directory: string): string[] {
  const age = (name: string) => Number(/\.(\d+)$/.exec(name)?.[1] ?? 0);
  const names = readdirSync(directory).sort((a, b) => age(b) - age(a));
  return names.flatMap((name) => readFileSync(join(directory, name), "utf8").split("\n").slice(0, -1));
}

/** Resolves when a condition holds, which it may never do: then the test ends by its limit. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `line ${from + i}`);

describe("a file of lines", () => {
  it("has all lines in their order, is the owner's alone, and is made with its directories", async () => {
    const directory = join(directoryOf({}), "some", "where");
    const file = join(directory, "d.jsonl");
    const log = new LineFile({ file, ...MANY }, never);
    for (const line of numbers(0, 5_000)) expect(log.add(`${line}\n`)).toBe(true);
    await log.close();
    expect(linesOf(directory)).toEqual(numbers(0, 5_000));
    expect([log.written, log.dropped]).toEqual([5_000, 0]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it("writes while it is open", async () => {
    const directory = directoryOf({});
    const log = new LineFile({ file: join(directory, "d.jsonl"), ...MANY }, never);
    for (let i = 0; i < 3; i++) {
      log.add(`line ${i}\n`);
      await until(() => log.written === i + 1);
      expect(linesOf(directory)).toEqual(numbers(0, i + 1));
    }
    await log.close();
  });

  it("is rotated: whole lines, no more than so many files, the latest kept", async () => {
    const directory = directoryOf({});
    const file = join(directory, "d.jsonl");
    const log = new LineFile({ file, maxBytes: 1_000, maxFiles: 4 }, never);
    for (const line of numbers(1_000, 2_000)) log.add(`${line}\n`);
    await log.close();
    expect(readdirSync(directory).sort()).toEqual(["d.jsonl", "d.jsonl.1", "d.jsonl.2", "d.jsonl.3"]);
    for (const name of readdirSync(directory)) {
      const { size } = statSync(join(directory, name));
      expect(size).toBeLessThan(1_020);
      if (name !== "d.jsonl") expect(size).toBeGreaterThanOrEqual(980);
    }
    const left = linesOf(directory);
    expect(left.length).toBeGreaterThan(240);
    expect(left).toEqual(numbers(2_000 - left.length, 2_000));
    expect([log.written, log.dropped]).toEqual([1_000, 0]);
  });

  it("can be the only one", async () => {
    const directory = directoryOf({});
    const log = new LineFile({ file: join(directory, "d.jsonl"), maxBytes: 1_000, maxFiles: 1 }, never);
    for (const line of numbers(1_000, 1_250)) log.add(`${line}\n`);
    await log.close();
    await until(() => !existsSync(join(directory, "d.jsonl.1")));
    const left = linesOf(directory);
    expect(left).toEqual(numbers(1_250 - left.length, 1_250));
    expect(left.length).toBeLessThan(110);
  });

  it("goes on behind what is there, on a line of its own", async () => {
    const directory = directoryOf({ "d.jsonl": "line 0\nhalf a li" });
    const log = new LineFile({ file: join(directory, "d.jsonl"), ...MANY }, never);
    log.add("line 1\n");
    await log.close();
    expect(linesOf(directory)).toEqual(["line 0", "half a li", "line 1"]);
  });

  it("loses and mixes nothing where another log takes the file over, whichever is closed when", async () => {
    const directory = directoryOf({});
    const options = { file: join(directory, "d.jsonl"), maxBytes: 1_000, maxFiles: 100 };
    let log = new LineFile(options, never);
    const closed: Promise<void>[] = [];
    for (let round = 0; round < 10; round++) {
      for (const line of numbers(round * 200, round * 200 + 100)) log.add(`${line}\n`);
      const next = new LineFile(options, never);
      // What comes to the new one before the old one is closed stands behind all that is the old one's.
      for (const line of numbers(round * 200 + 100, round * 200 + 200)) next.add(`${line}\n`);
      closed.push(log.close());
      if (round % 2) await closed.at(-1);
      log = next;
    }
    await log.close();
    await Promise.all(closed);
    expect(linesOf(directory)).toEqual(numbers(0, 2_000));
  });

  it("takes nothing after it was closed", async () => {
    const directory = directoryOf({});
    const log = new LineFile({ file: join(directory, "d.jsonl"), ...MANY }, never);
    log.add("line 0\n");
    const closing = log.close();
    expect(log.add("late\n")).toBe(false);
    await Promise.all([closing, log.close()]);
    expect(linesOf(directory)).toEqual(["line 0"]);
    expect([log.written, log.dropped]).toEqual([1, 1]);
  });
});

describe("a file that is taken away while it is written", () => {
  const place = (pace: Partial<Pace>) => {
    const file = join(directoryOf({}), "d.jsonl");
    return { file, log: new LineFile({ file, ...MANY }, never, pace) };
  };
  const written = async (log: LineFile, line: string) => {
    const { written } = log;
    log.add(`${line}\n`);
    await until(() => log.written > written);
  };

  it("is made anew when it was removed", async () => {
    const { file, log } = place({ lookMs: 0 });
    for (let i = 0; i < 3; i++) {
      await written(log, `line ${i}`);
      expect(readFileSync(file, "utf8")).toBe(`line ${i}\n`);
      rmSync(file);
    }
    await log.close();
    expect([log.written, log.dropped]).toEqual([3, 0]);
  });

  it("is followed by the one that was put in its place", async () => {
    const { file, log } = place({ lookMs: 0 });
    await written(log, "line 0");
    renameSync(file, `${file}.old`);
    writeFileSync(file, "theirs");
    await written(log, "line 1");
    await written(log, "line 2");
    await log.close();
    expect(readFileSync(`${file}.old`, "utf8")).toBe("line 0\n");
    expect(readFileSync(file, "utf8")).toBe("theirs\nline 1\nline 2\n");
  });

  it("is looked for where it was rotated to meanwhile, and loses nothing", async () => {
    const directory = directoryOf({});
    const options = { file: join(directory, "d.jsonl"), maxBytes: 1_000, maxFiles: 100 };
    const log = new LineFile(options, never, { lookMs: 0 });
    for (let i = 0; i < 300; i++) await written(log, `line ${i}`);
    await log.close();
    expect(readdirSync(directory).length).toBeGreaterThan(2);
    expect(linesOf(directory)).toEqual(numbers(0, 300));
  });

  it("is not looked for before every line", async () => {
    const { file, log } = place({ lookMs: 2 ** 30 });
    await written(log, "line 0");
    rmSync(file);
    await written(log, "line 1");
    expect(existsSync(file)).toBe(false);
    await log.close();
  });
});

describe("a pipe in the place of a file", () => {
  it("is not opened, is told once, and its lines are counted", async () => {
    const file = join(directoryOf({}), "pipe");
    execFileSync("mkfifo", [file]);
    const errors: string[] = [];
    const log = new LineFile({ file, ...MANY }, ({ message }) => errors.push(message), { retryMs: 1 });
    for (const line of numbers(0, 3)) log.add(`${line}\n`);
    await until(() => errors.length > 0);
    await log.close();
    expect(errors).toEqual([`${file} is no regular file`]);
    expect([log.written, log.dropped]).toEqual([0, 3]);
  });

  it("is not opened either when it takes the place of one that is written", async () => {
    const file = join(directoryOf({}), "d.jsonl");
    const errors: string[] = [];
    const onError = ({ message }: Error) => errors.push(message);
    const log = new LineFile({ file, ...MANY }, onError, { lookMs: 0, retryMs: 1 });
    log.add("line 0\n");
    await until(() => log.written === 1);
    rmSync(file);
    execFileSync("mkfifo", [file]);
    log.add("line 1\n");
    await until(() => errors.length > 0);
    await log.close();
    expect(errors).toEqual([`${file} is no regular file`]);
    expect([log.written, log.dropped]).toEqual([1, 1]);
  });
});

describe("a disk that hangs", () => {
  /** Occupies all threads that the process reads and writes files with; what is returned frees them. */
  async function hang(): Promise<() => Promise<void>> {
    const pipe = join(directoryOf({}), "pipe");
    execFileSync("mkfifo", [pipe]);
    const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
    const blocked = Array.from({ length: threads }, () => open(pipe, "r"));
    return async () => {
      // Opened on this thread, for which a pipe that is opened both ways does not block.
      const end = openSync(pipe, "r+");
      for (const file of await Promise.all(blocked)) await file.close();
      closeSync(end);
    };
  }

  it.each([
    ["has not opened the file yet", false],
    ["is to write", true],
  ])("does not keep a log from being closed, where it %s", async (_name, isOpen) => {
    const directory = directoryOf({});
    const log = new LineFile({ file: join(directory, "d.jsonl"), ...MANY }, never, { closeMs: 20 });
    if (isOpen) {
      log.add("line 0\n");
      await until(() => log.written === 1);
    }
    const { written } = log;
    const free = await hang();
    log.add("line 1\n");
    // One batch is on its way, the other waits.
    await new Promise((resolve) => setImmediate(resolve));
    log.add("line 2\n");
    await log.close();
    expect([log.written, log.dropped]).toEqual([written, 2]);
    await free();
    // The same file's next log begins when the disk has let go of this one, whose lines it does not count once more.
    const next = new LineFile({ file: join(directory, "d.jsonl"), ...MANY }, never);
    next.add("line 3\n");
    await next.close();
    expect(linesOf(directory).at(-1)).toBe("line 3");
    expect([log.written, log.dropped, next.written, next.dropped]).toEqual([written, 2, 1, 0]);
  });

  it("does not keep the next log of the file from being closed either", async () => {
    const file = join(directoryOf({}), "d.jsonl");
    const free = await hang();
    const logs = [0, 1].map(() => new LineFile({ file, ...MANY }, never, { closeMs: 20 }));
    for (const log of logs) log.add("line\n");
    await Promise.all(logs.map((log) => log.close()));
    expect(logs.map(({ written, dropped }) => [written, dropped])).toEqual([
      [0, 1],
      [0, 1],
    ]);
    await free();
  });
});

describe("a file that cannot be written", () => {
  it("is told once, costs bounded memory, and is written again when it can be", async () => {
    const directory = directoryOf({});
    const file = join(directory, "d.jsonl");
    mkdirSync(file);
    const errors: string[] = [];
    const log = new LineFile(
      { file, maxBytes: 2 ** 20, maxFiles: 20 },
      ({ message }) => errors.push(message),
      { retryMs: 1 },
    );
    const line = `${"x".repeat(2 ** 20 - 1)}\n`;
    for (let i = 0; i < 20; i++) expect(log.add(line)).toBe(i < 8);
    expect(log.dropped).toBe(12);
    await until(() => errors.length > 0);
    // Some more attempts.
    await new Promise((resolve) => setTimeout(resolve, 50));
    rmdirSync(file);
    await until(() => log.written === 8);
    await log.close();
    expect(errors).toEqual([`${file} is no regular file`]);
    expect(log.dropped).toBe(12);
    expect(linesOf(directory).length).toBe(8);
  });

  it("is told with what is in its way", async () => {
    const directory = directoryOf({});
    const file = join(directory, "sub", "d.jsonl");
    writeFileSync(join(directory, "sub"), "no directory");
    const errors: string[] = [];
    const options = { file, maxBytes: 1_000, maxFiles: 2 };
    const log = new LineFile(options, ({ message }) => errors.push(message), { retryMs: 1 });
    log.add("line 0\n");
    await until(() => errors.length === 1);
    await log.close();
    expect(errors.length).toBe(1);
    expect(errors[0]).toContain("ENOTDIR");
    expect([log.written, log.dropped]).toEqual([0, 1]);
  });

  it("does not keep a log from being closed", async () => {
    const file = directoryOf({});
    const errors: Error[] = [];
    const log = new LineFile({ file, ...MANY }, (error) => errors.push(error), { retryMs: 2 ** 30 });
    log.add("line 0\n");
    await until(() => errors.length > 0);
    log.add("line 1\n");
    await log.close();
    expect([log.written, log.dropped, errors.length]).toEqual([0, 2, 1]);
  });

  it("fails in the middle of a rotation, and goes on", async () => {
    const directory = directoryOf({});
    const file = join(directory, "d.jsonl");
    const errors: string[] = [];
    const log = new LineFile({ file, maxBytes: 1_000, maxFiles: 2 }, ({ message }) => errors.push(message), {
      retryMs: 1,
    });
    log.add("line 0\n");
    await until(() => log.written === 1);
    // In the way of the file that would be renamed.
    mkdirSync(join(directory, "d.jsonl.1", "full"), { recursive: true });
    for (const line of numbers(1, 200)) log.add(`${line}\n`);
    await until(() => errors.length > 0);
    expect(errors[0]).toMatch(/EISDIR|ENOTEMPTY|EEXIST/);
    rmdirSync(join(directory, "d.jsonl.1", "full"));
    rmdirSync(join(directory, "d.jsonl.1"));
    log.add("line 200\n");
    await log.close();
    expect(log.written + log.dropped).toBe(201);
    expect(linesOf(directory).at(-1)).toBe("line 200");
  });
});
