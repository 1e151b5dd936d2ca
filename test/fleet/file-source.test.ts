// With real files; when they are looked at is up to the tests.
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { FileSource } from "../../host/fleet/file-source.js";
import { directoryOf } from "../fixtures/directory.js";
import { VirtualClock } from "../gateway/virtual-clock.js";
import { Heard, until } from "./listener.js";

const listOf = (...targets: string[]) => JSON.stringify([{ targets }]);

function writtenAt(file: string): bigint | undefined {
  return statSync(file, { bigint: true, throwIfNoEntry: false })?.ctimeNs;
}

/** A source that watches a file in a new directory, and what became of it. */
function watch(files: Readonly<Record<string, string | Uint8Array>> = {}, name = "workers.json") {
  const directory = directoryOf(files);
  const file = join(directory, name);
  const clock = new VirtualClock();
  const heard = new Heard();
  const source = new FileSource({ kind: "file", file }, clock);
  onTestFinished(() => source.stop());
  /** Looks until what was changed has been seen at rest, and read. */
  const settle = async () => {
    await source.look();
    await source.look();
  };
  const view = () => source.view(clock.now());
  let written = writtenAt(file);
  /** Writes in place, at another time than before by the file system's clock, which ticks every few milliseconds. */
  const write = (text: string) => {
    written = writtenAt(file) ?? written;
    do writeFileSync(file, text);
    while (writtenAt(file) === written);
  };
  return { directory, file, clock, heard, source, settle, view, write, start: () => source.start(heard) };
}

test("the targets of a file are workers", async () => {
  const { heard, start, view, file } = watch({ "workers.json": listOf("b:1", "a:1") });
  await start();
  expect(heard.sets).toEqual([
    [
      { id: "a:1", url: "http://a:1" },
      { id: "b:1", url: "http://b:1" },
    ],
  ]);
  expect(view()).toEqual({ kind: "file", watches: file, workers: 2, ageMs: 0, error: null });
});

test("an empty list is told at the start, too", async () => {
  const { heard, start } = watch({ "workers.json": "[]" });
  await start();
  expect(heard).toMatchObject({ sets: [[]], failures: [] });
});

test("it is looked at every second", async () => {
  const { heard, start, clock, write } = watch({ "workers.json": listOf("a:1") });
  await start();
  write(listOf("b:1"));
  await until(() => {
    clock.advance(1_000);
    return heard.sets.length === 2;
  });
  expect(heard.ids).toEqual([["a:1"], ["b:1"]]);
});

test("a file that is not there yet is no mistake of the start: there are no workers until it comes", async () => {
  const { heard, start, view, file, write, settle } = watch();
  await start();
  const error = `${file}:1:1: cannot read the file: it does not exist`;
  expect(heard).toMatchObject({ sets: [], failures: [error] });
  expect(view()).toMatchObject({ workers: 0, ageMs: null, error });
  write(listOf("a:1"));
  await settle();
  expect(heard).toMatchObject({ ids: [["a:1"]], failures: [error] });
  expect(view()).toMatchObject({ workers: 1, ageMs: 0, error: null });
});

test("a file renamed over it counts", async () => {
  const { heard, start, settle, directory, file } = watch({ "workers.json": listOf("a:1") });
  await start();
  writeFileSync(join(directory, "new"), listOf("a:1", "b:1"));
  renameSync(join(directory, "new"), file);
  await settle();
  expect(heard).toMatchObject({ ids: [["a:1"], ["a:1", "b:1"]], failures: [] });
});

test("a swap of symbolic links counts, as Kubernetes updates a ConfigMap", async () => {
  const { heard, start, settle, directory } = watch({
    "..v1/workers.json": listOf("a:1"),
    "..v2/workers.json": listOf("b:1"),
  });
  symlinkSync("..v1", join(directory, "..data"));
  symlinkSync("..data/workers.json", join(directory, "workers.json"));
  await start();
  symlinkSync("..v2", join(directory, "..tmp"));
  renameSync(join(directory, "..tmp"), join(directory, "..data"));
  rmSync(join(directory, "..v1"), { recursive: true });
  await settle();
  expect(heard).toMatchObject({ ids: [["a:1"], ["b:1"]], failures: [] });
});

test("a change in place that keeps size and time counts", async () => {
  const { heard, start, settle, file, write } = watch({ "workers.json": listOf("a:1") });
  const { atime, mtime } = statSync(file);
  utimesSync(file, atime, mtime);
  await start();
  write(listOf("b:1"));
  utimesSync(file, atime, mtime);
  await settle();
  expect(heard.ids).toEqual([["a:1"], ["b:1"]]);
});

test("what was deleted is missed, and counts again when it comes back", async () => {
  const { heard, start, settle, source, view, file, clock } = watch({ "workers.json": listOf("a:1") });
  await start();
  const text = readFileSync(file);
  unlinkSync(file);
  clock.advance(500);
  await source.look();
  const error = `${file}:1:1: cannot read the file: it does not exist`;
  expect(view()).toMatchObject({ workers: 1, ageMs: 500, error });
  writeFileSync(file, text);
  await settle();
  expect(view()).toMatchObject({ workers: 1, ageMs: 0, error: null });
  expect(heard).toMatchObject({ ids: [["a:1"]], failures: [error] });
});

test("a symbolic link that comes back to the same file mends it", async () => {
  const { heard, start, settle, view, directory, file } = watch({ "real.json": listOf("a:1") });
  symlinkSync(join(directory, "real.json"), file);
  await start();
  unlinkSync(file);
  await settle();
  expect(view().error).toMatch(/it does not exist$/);
  symlinkSync(join(directory, "real.json"), file);
  await settle();
  expect(view().error).toBeNull();
  expect(heard.ids).toEqual([["a:1"]]);
});

test("another content in place of a deleted file counts", async () => {
  const { heard, start, settle, write, file } = watch({ "workers.json": listOf("a:1") });
  await start();
  unlinkSync(file);
  write(listOf("b:1"));
  await settle();
  expect(heard).toMatchObject({ ids: [["a:1"], ["b:1"]], failures: [] });
});

test("half of a file changes nothing, and is told once with its line until it is whole", async () => {
  const { heard, start, settle, view, file, write, source, clock } = watch({ "workers.json": listOf("a:1") });
  await start();
  const whole = JSON.stringify([{ targets: ["b:1", "c:1"] }], null, 1);
  write(whole.slice(0, -8));
  await settle();
  const error = `${file}:6:1: broken YAML: a list opened with "[" is not closed with "]" before this place`;
  expect(heard).toMatchObject({ ids: [["a:1"]], failures: [error] });
  clock.advance(250);
  await source.look();
  await source.look();
  expect(heard.failures).toEqual([error]);
  expect(view()).toMatchObject({ workers: 1, ageMs: 250, error });
  write(whole);
  await settle();
  expect(heard.ids).toEqual([["a:1"], ["b:1", "c:1"]]);
  expect(view()).toMatchObject({ workers: 2, ageMs: 0, error: null });
});

test("an emptied file changes nothing", async () => {
  const { heard, start, settle, write, view } = watch({ "workers.json": listOf("a:1") });
  await start();
  write("");
  await settle();
  expect(heard.ids).toEqual([["a:1"]]);
  expect(view().error).toMatch(/:1:1: the file of targets must be a list of groups .*, found nothing$/);
});

test("what is being written in place is read when it is at rest", async () => {
  const { heard, start, source, file, write } = watch({ "workers.json": listOf("a:1") });
  await start();
  write("- targets: [b:1]\n");
  for (const target of ["c:1", "d:1", "e:1"]) {
    await source.look();
    appendFileSync(file, `- targets: [${target}]\n`);
  }
  await source.look();
  expect(heard.ids).toEqual([["a:1"]]);
  await source.look();
  expect(heard.ids).toEqual([["a:1"], ["b:1", "c:1", "d:1", "e:1"]]);
});

test("what never rests is read all the same after ten looks", async () => {
  const { heard, start, source, write } = watch({ "workers.json": listOf("a:1") });
  await start();
  for (let i = 1; i <= 10; i++) {
    write(listOf(`b:${i}`));
    await source.look();
  }
  expect(heard.ids).toEqual([["a:1"]]);
  write(listOf("b:11"));
  await source.look();
  expect(heard.ids).toEqual([["a:1"], ["b:11"]]);
});

test("another order of the same workers is no change", async () => {
  const { heard, start, settle, write } = watch({ "workers.json": listOf("a:1", "b:1") });
  await start();
  write(`- { targets: ["b:1"] }\n- { targets: ["a:1"], labels: { job: x } }\n`);
  await settle();
  write(`- { targets: ["b:1"], labels: { hawser_weight: 50 } }\n- { targets: ["a:1"] }\n`);
  await settle();
  expect(heard.failures).toEqual([]);
  expect(heard.sets.slice(1)).toEqual([
    [
      { id: "a:1", url: "http://a:1" },
      { id: "b:1", url: "http://b:1", weight: 50 },
    ],
  ]);
});

test("each error is told once until it is mended", async () => {
  const { heard, start, settle, write } = watch({ "workers.json": listOf("a:0") });
  await start();
  for (const text of [listOf("b:0"), listOf("a:0"), listOf("a:1"), listOf("a:0")]) {
    write(text);
    await settle();
  }
  expect(heard.failures.map((message) => /"(.*)"/.exec(message)?.[1])).toEqual(["a:0", "b:0", "a:0"]);
});

test("of many mistakes the first are told, with the number of the others", async () => {
  const { heard, start, file } = watch({
    "workers.json": listOf("a:0", "b:0", "c:0", "d:0", "e:0", "f:0", "g:0"),
  });
  await start();
  const parts = heard.failures[0]!.split("; ");
  expect(parts.map((part) => part.slice(0, part.indexOf(" must")))).toEqual([
    ...[0, 1, 2, 3, 4].map((i) => `${file}:1:${14 + 6 * i}: [0].targets[${i}]`),
    "and 2 more mistake",
  ]);
  expect(parts.at(-1)).toBe("and 2 more mistakes");
});

test.each<[string, (file: string) => void, string]>([
  ["a directory", (file) => mkdirSync(file), "it is a directory"],
  ["a pipe", (file) => execFileSync("mkfifo", [file]), "it is not a regular file"],
  ["a device", (file) => symlinkSync("/dev/zero", file), "it is not a regular file"],
  ["not UTF-8", (file) => writeFileSync(file, Uint8Array.of(0xff)), "it is not UTF-8 text"],
  [
    "too large",
    (file) => writeFileSync(file, " ".repeat(4_194_305)),
    "it has 4194305 bytes, at most 4194304 are allowed",
  ],
])("what is %s is refused, and can be mended", async (_, make, why) => {
  const { heard, start, settle, write, file } = watch();
  make(file);
  await start();
  await settle();
  const error = `${file}:1:1: cannot read the file: ${why}`;
  expect(heard).toMatchObject({ sets: [], failures: [error] });
  rmSync(file, { recursive: true });
  write(listOf("a:1"));
  await settle();
  expect(heard).toMatchObject({ ids: [["a:1"]], failures: [error] });
});

test("once stopped nothing is told", async () => {
  const { heard, start, settle, write, source, clock } = watch({ "workers.json": listOf("a:1") });
  await start();
  source.stop();
  write(listOf("b:1"));
  clock.advance(10_000);
  await settle();
  expect(heard.sets).toHaveLength(1);
});

test("once stopped it is not looked at", async () => {
  const { start, source, clock, file, view } = watch({ "workers.json": listOf("a:1") });
  await start();
  source.stop();
  clock.advance(10_000);
  // A look would be over when that of another source is.
  const other = new FileSource({ kind: "file", file }, new VirtualClock());
  onTestFinished(() => other.stop());
  await other.start(new Heard());
  await other.look();
  expect(view()).toMatchObject({ ageMs: 10_000 });
});

test("stopping while it is read ends it silently", async () => {
  const { heard, start, source } = watch({ "workers.json": listOf("a:1") });
  const started = start();
  source.stop();
  await started;
  expect(heard).toMatchObject({ sets: [], failures: [] });
});
