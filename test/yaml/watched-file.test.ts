import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { WatchedFile } from "../../host/yaml/watched-file.js";
import { directoryOf } from "../fixtures/directory.js";

const MAX_BYTES = 64;

/** A watched file in a new directory; without a text it is not there yet. */
function watch(text?: string) {
  const directory = directoryOf(text === undefined ? {} : { "file.yaml": text });
  const path = join(directory, "file.yaml");
  const writtenAt = () => statSync(path, { bigint: true, throwIfNoEntry: false })?.ctimeNs;
  let written = writtenAt();
  /** Writes in place, at another time than before by the file system's clock, which ticks every few milliseconds. */
  const write = (content: string | Uint8Array) => {
    written = writtenAt() ?? written;
    do writeFileSync(path, content);
    while (writtenAt() === written);
  };
  return { directory, path, write, file: new WatchedFile(path, MAX_BYTES) };
}

describe("a look", () => {
  test("takes at first what is there, then what has changed and stood still", async () => {
    const { file, write } = watch("a");
    expect(await file.look()).toEqual({ text: "a" });
    expect(await file.look()).toBe("unchanged");
    write("b");
    expect(await file.look()).toBe("unsettled");
    expect(await file.look()).toEqual({ text: "b" });
    expect(await file.look()).toBe("unchanged");
  });

  test("takes the same text again where it was written again", async () => {
    const { file, write } = watch("a");
    await file.look();
    write("a");
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "a" }]);
  });

  test("waits while the file grows", async () => {
    const { file, write, path } = watch("a");
    await file.look();
    write("b");
    for (const more of ["c", "d"]) {
      expect(await file.look()).toBe("unsettled");
      appendFileSync(path, more);
    }
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "bcd" }]);
  });

  test("takes what never stands still after ten looks, and from then on until it does", async () => {
    const { file, write } = watch("a");
    await file.look();
    for (let i = 1; i <= 13; i++) {
      write(`b${i}`);
      expect(await file.look()).toEqual(i <= 10 ? "unsettled" : { text: `b${i}` });
    }
    expect(await file.look()).toBe("unchanged");
    write("c");
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "c" }]);
  });

  test("sees a file that was renamed over it, and a link that was swapped", async () => {
    const { file, directory, path } = watch();
    writeFileSync(join(directory, "1"), "one");
    writeFileSync(join(directory, "2"), "two");
    symlinkSync("1", path);
    expect(await file.look()).toEqual({ text: "one" });
    symlinkSync("2", join(directory, "link"));
    renameSync(join(directory, "link"), path);
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "two" }]);
    writeFileSync(join(directory, "3"), "three");
    renameSync(join(directory, "3"), path);
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "three" }]);
  });

  test("fails with the cause while the file is gone, and takes the same content when it is back", async () => {
    const { file, directory, path } = watch();
    writeFileSync(join(directory, "real"), "a");
    symlinkSync("real", path);
    await file.look();
    unlinkSync(path);
    await expect(file.look()).rejects.toThrow(/^it does not exist$/);
    await expect(file.look()).rejects.toThrow(/^it does not exist$/);
    symlinkSync("real", path);
    expect(await file.look()).toEqual({ text: "a" });
  });

  test("takes the same content also when it comes back in place of what could not be read", async () => {
    const { file, directory, path } = watch();
    writeFileSync(join(directory, "real"), "a");
    symlinkSync("real", path);
    await file.look();
    unlinkSync(path);
    symlinkSync(".", path);
    expect(await file.look()).toBe("unsettled");
    await expect(file.look()).rejects.toThrow(/^it is a directory$/);
    unlinkSync(path);
    symlinkSync("real", path);
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "a" }]);
  });

  test("reads what is not UTF-8 once", async () => {
    const { file, write } = watch("a");
    await file.look();
    write(Uint8Array.of(0xff));
    expect(await file.look()).toBe("unsettled");
    await expect(file.look()).rejects.toThrow(/^it is not UTF-8 text$/);
    expect(await file.look()).toBe("unchanged");
    write("b");
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "b" }]);
  });

  test.each<[string, (path: string) => void, string]>([
    ["a directory", (path) => mkdirSync(path), "it is a directory"],
    ["a pipe", (path) => execFileSync("mkfifo", [path]), "it is not a regular file"],
    ["a device", (path) => symlinkSync("/dev/zero", path), "it is not a regular file"],
    [
      "too large",
      (path) => writeFileSync(path, " ".repeat(MAX_BYTES + 1)),
      "it has 65 bytes, at most 64 are allowed",
    ],
    ["a link to itself", (path) => symlinkSync("file.yaml", path), "ELOOP"],
  ])("refuses what is %s, and so does a reading", async (_, make, why) => {
    const { file, path, write } = watch();
    make(path);
    await expect(file.look()).rejects.toThrow(why);
    await expect(file.look()).rejects.toThrow(why);
    await expect(file.read()).rejects.toThrow(why);
    rmSync(path, { recursive: true });
    write(" ".repeat(MAX_BYTES));
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: " ".repeat(MAX_BYTES) }]);
  });
});

describe("a reading", () => {
  test("takes what is there, and a look finds nothing new", async () => {
    const { file, write } = watch("a");
    expect(await file.read()).toBe("a");
    expect(await file.look()).toBe("unchanged");
    write("b");
    expect(await file.read()).toBe("b");
    expect(await file.look()).toBe("unchanged");
    expect(await file.read()).toBe("b");
  });

  test("leaves to the next looks what comes after it, which has to settle", async () => {
    const { file, write } = watch("a");
    await file.read();
    write("b");
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "b" }]);
  });

  test("takes at once what a look finds unsettled", async () => {
    const { file, write } = watch("a");
    await file.look();
    write("b");
    expect(await file.look()).toBe("unsettled");
    expect(await file.read()).toBe("b");
    expect(await file.look()).toBe("unchanged");
  });

  test("fails with the cause, and a look takes the same content when it is back", async () => {
    const { file, directory, path } = watch();
    writeFileSync(join(directory, "real"), "a");
    symlinkSync("real", path);
    await file.read();
    unlinkSync(path);
    await expect(file.read()).rejects.toThrow(/^it does not exist$/);
    symlinkSync("real", path);
    expect([await file.look(), await file.look()]).toEqual(["unsettled", { text: "a" }]);
  });

  test("of what is not UTF-8 fails each time", async () => {
    const { file, write } = watch();
    write(Uint8Array.of(0xff));
    for (const _ of [1, 2]) await expect(file.read()).rejects.toThrow(/^it is not UTF-8 text$/);
    expect(await file.look()).toBe("unchanged");
  });

  test("beside a look under way does not make the content be taken twice by looks", async () => {
    const { file } = watch("a");
    const [look, text] = await Promise.all([file.look(), file.read()]);
    expect(text).toBe("a");
    expect([{ text: "a" }, "unchanged"]).toContainEqual(look);
    expect(await file.look()).toBe("unchanged");
  });
});
