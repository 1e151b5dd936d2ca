// Where the strings of a JSON text end. The search, which takes most of the time of a scan, is a module of our own, from
// assembly/json/: it looks at sixteen bytes at a step.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { byteAt, NONE, QUOTE, UNIT_BYTES } from "./json-text.js";

interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly WINDOW: { readonly value: number };
  readonly SIZE: { readonly value: number };
  readonly stop: (at: number) => number;
}

const PACKAGE = dirname(createRequire(import.meta.url).resolve("hawser/package.json"));

let address = 0;
let size = 0;
/** The module's memory, in which there is room for one part of one text at a time. */
let window = new Uint8Array();
let stop: Exports["stop"];

/**
 * Loads the module, unless it is there; to be called before any text is looked at. Throws an Error where there is no address
 * space for it: not when this file is imported, since much of the host does without.
 */
export function loadSearch(): void {
  if (size > 0) return;
  const module = new WebAssembly.Module(readFileSync(join(PACKAGE, "build/json/strings.wasm")));
  const { exports } = instantiate(module);
  const { memory, WINDOW, SIZE } = exports as unknown as Exports;
  ({ stop } = exports as unknown as Exports);
  address = WINDOW.value;
  size = SIZE.value;
  window = new Uint8Array(memory.buffer, address, size);
}

function instantiate(module: WebAssembly.Module): WebAssembly.Instance {
  try {
    return new WebAssembly.Instance(module);
  } catch (error) {
    const hint = "each module reserves about 10 GB of address space, see ulimit -v";
    throw new Error(`JSON cannot be read: ${(error as Error).message}; ${hint}`);
  }
}

/** How many texts there have been, and which of them, by this count, has a part in the window: no text is kept for that. */
let count = 0;
let inWindow = 0;

/** The strings of one text. */
export class JsonStrings {
  readonly #body: Buffer;
  readonly #number = ++count;
  /** What of the text was put into the window last. */
  #start = 0;
  #end = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  /** The index after the closing quote of the string whose contents go on at `at`, NONE where it has none or is not valid. */
  end(at: number): number {
    const body = this.#body;
    if (inWindow !== this.#number || at < this.#start || at >= this.#end) this.#show(at);
    for (;;) {
      const found = this.#start + stop(address + at - this.#start) - address;
      // Behind the end of the text there may be bytes of another one.
      if (byteAt(body, found) === QUOTE) return found + 1;
      // Before the end of the window, an escape may have been cut.
      if (this.#end === body.length || found + UNIT_BYTES <= this.#end) return NONE;
      this.#show(found);
      at = found;
    }
  }

  /** Puts into the window what there is from `start` on. */
  #show(start: number): void {
    const end = Math.min(start + size, this.#body.length);
    this.#body.copy(window, 0, start, end);
    this.#start = start;
    this.#end = end;
    inWindow = this.#number;
  }
}
