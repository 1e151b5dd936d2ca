// Source -> module, by the compiler of its language, in a child process with a limit on its time and memory.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { PACKAGE_ROOT } from "../policy/catalog.js";
import { BuildError } from "./build-error.js";
import type { Language } from "./project.js";

/** `debug` is for AssemblyScript alone: it keeps assertions, and imports `abort` and `trace`. */
export type Target = "release" | "debug";

/** A compiler that takes longer than this is ended. */
const TIMEOUT_MS = 120_000;

/** 16 pages, so that `init` has room for 16,384 rows; the rest of them the frame does not need is the stack's and the data's. */
const MEMORY_BYTES = 16 * 65_536;
const STACK_BYTES = 16_384;

/** The C compiler's arguments, apart from source, output and the header's folder. */
export const CLANG_FLAGS: readonly string[] = [
  ...["--target=wasm32", "-O3", "-nostdlib", "-ffreestanding", "-Wall", "-Wextra"],
  ...["-Wl,--no-entry", "-Wl,--export=init", "-Wl,--export=select"],
  ...[`-Wl,--initial-memory=${MEMORY_BYTES}`, `-Wl,-z,stack-size=${STACK_BYTES}`],
];

/** The Rust compiler's arguments, apart from source and output. */
export const RUSTC_FLAGS: readonly string[] = [
  ...["--target", "wasm32-unknown-unknown", "--crate-type", "cdylib", "--edition", "2021"],
  ...["-C", "opt-level=3", "-C", "panic=abort"],
  ...["-C", `link-arg=--initial-memory=${MEMORY_BYTES}`, "-C", `link-arg=-zstack-size=${STACK_BYTES}`],
];

/** Folder of `hawser.h`. */
export const C_HEADERS = join(PACKAGE_ROOT, "templates", "c");

interface Command {
  readonly program: string;
  readonly args: readonly string[];
  /** What to say where the program is not installed. */
  readonly missing: string;
}

/** Compiles one source file and returns the module. Throws a BuildError with all that the compiler says. */
export async function compile(
  source: string,
  language: Language,
  target: Target = "release",
): Promise<Uint8Array<ArrayBuffer>> {
  const scratch = mkdtempSync(join(tmpdir(), "hawser-build-"));
  try {
    const output = join(scratch, "module.wasm");
    await run(commandOf(source, language, target, output, scratch), source);
    return readFileSync(output) as Uint8Array<ArrayBuffer>;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function commandOf(
  source: string,
  language: Language,
  target: Target,
  output: string,
  scratch: string,
): Command {
  switch (language) {
    case "assemblyscript":
      return ascCommand(source, target, output, scratch);
    case "c": {
      const missing =
        "the policy is written in C, which needs clang and lld (Debian: apt-get install clang lld)";
      return { program: "clang", args: [...CLANG_FLAGS, "-I", C_HEADERS, "-o", output, source], missing };
    }
    case "rust": {
      const missing =
        "the policy is written in Rust, which needs rustc and its target wasm32-unknown-unknown";
      return { program: "rustc", args: [...RUSTC_FLAGS, "-o", output, source], missing };
    }
    case "wat": {
      const assembler = join(dirname(resolveFrom(ascPath(), "binaryen")), "bin", "wasm-as");
      const features = ["simd", "bulk-memory", "sign-ext", "nontrapping-float-to-int", "multivalue"];
      const flags = features.map((feature) => `--enable-${feature}`);
      return node([assembler, source, ...flags, "-g", "-o", output]);
    }
  }
}

function ascCommand(source: string, target: Target, output: string, scratch: string): Command {
  // The compiler looks for `hawser/assembly` in folders of packages: here is one with this package, wherever it stands.
  symlinkSync(PACKAGE_ROOT, join(scratch, "hawser"));
  const release = ["--config", join(PACKAGE_ROOT, "asconfig.json"), "--target", "release"];
  const debug = ["--debug", "--runtime", "stub", "--enable", "simd", "--initialMemory", "16"];
  return node([
    ...["--max-old-space-size=512", "--wasm-max-mem-pages=4096", ascPath(), source, "--path", scratch],
    ...[...(target === "release" ? release : debug), "--noColors", "--outFile", output],
  ]);
}

function node(args: readonly string[]): Command {
  return { program: process.execPath, args, missing: "node cannot be started" };
}

function ascPath(): string {
  return join(dirname(resolveFrom(import.meta.filename, "assemblyscript/package.json")), "bin", "asc.js");
}

function resolveFrom(file: string, name: string): string {
  return createRequire(file).resolve(name);
}

function run({ program, args, missing }: Command, source: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        said += text;
      });
    }
    const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
    child.on("error", ({ code }: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      reject(
        new BuildError(`${source}: ${code === "ENOENT" ? missing : `cannot start ${program}: ${code}`}`),
      );
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve();
      else if (signal)
        reject(new BuildError(`${source}: the compiler was ended by ${signal}\n${said}`.trim()));
      else
        reject(new BuildError(withFile(said.trim(), source) || `${source}: the compiler ended with ${code}`));
    });
  });
}

/** The assembler of the text format names only a line and a column. */
function withFile(said: string, source: string): string {
  return said.replace(/^Fatal: (?=\d+:\d+: )/, `${source}:`);
}
