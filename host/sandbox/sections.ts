// A module as its sections: the frame of the binary format, and the names that messages use.
import { Reader } from "./reader.js";

export const SECTION = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
} as const;

/** The sections that a module may have once each, in the order in which they must stand. */
export const SECTION_ORDER: readonly number[] = [
  SECTION.type,
  SECTION.import,
  SECTION.function,
  SECTION.table,
  SECTION.memory,
  SECTION.global,
  SECTION.export,
  SECTION.start,
  SECTION.element,
  SECTION.dataCount,
  SECTION.code,
  SECTION.data,
];

const NAMES: Readonly<Record<number, string>> = {
  ...Object.fromEntries(Object.entries(SECTION).map(([name, id]) => [id, name])),
  [SECTION.dataCount]: "data count",
};
const EXCEPTION_TAGS = 13;
const HEADER = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0];

/** Where a section's content lies in the module. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface CustomSection extends Span {
  readonly name: string;
}

export interface Sections {
  readonly byId: ReadonlyMap<number, Span>;
  readonly custom: readonly CustomSection[];
}

/** Cuts a module into its sections. Throws an AdmissionError for a bad header, order or size. */
export function readSections(bytes: Uint8Array): Sections {
  const reader = new Reader(bytes, "header");
  for (const expected of HEADER) {
    if (reader.byte("the header") !== expected) {
      reader.at--;
      reader.malformed("it does not begin as WebAssembly of version 1");
    }
  }
  const byId = new Map<number, Span>();
  const custom: CustomSection[] = [];
  let last = -1;
  const outline = new Reader(bytes, "sections", reader.at);
  while (!outline.isAtEnd) {
    const id = outline.byte("a section's number");
    const part = outline.part(outline.u32("a section's size"), sectionName(id));
    if (id === SECTION.custom) custom.push(customSection(part));
    else {
      last = checkOrder(part, id, last);
      byId.set(id, { start: part.at, end: part.end });
    }
  }
  return { byId, custom };
}

/** A reader of one section; undefined where the module has none. */
export function sectionReader(bytes: Uint8Array, sections: Sections, id: number): Reader | undefined {
  const span = sections.byId.get(id);
  return span && new Reader(bytes, sectionName(id), span.start, span.end);
}

function sectionName(id: number): string {
  return NAMES[id] ? `${NAMES[id]} section` : `section ${id}`;
}

function checkOrder(part: Reader, id: number, last: number): number {
  if (id === EXCEPTION_TAGS) part.refuse("it declares exception tags, which no policy may");
  const position = SECTION_ORDER.indexOf(id);
  if (position < 0) part.malformed(`there is no section of the number ${id}`);
  if (position === last) part.malformed("there are two of it");
  if (position < last) part.malformed(`it stands behind the ${sectionName(SECTION_ORDER[last]!)}`);
  return position;
}

function customSection(part: Reader): CustomSection {
  const name = part.text("its name");
  return { name, start: part.at, end: part.end };
}

const FUNCTION_NAMES = 1;

/** Names of functions by index, from the custom section `name`. One that cannot be read names nothing, as in V8. */
export function readFunctionNames(bytes: Uint8Array, { custom }: Sections): ReadonlyMap<number, string> {
  const names = new Map<number, string>();
  const section = custom.find(({ name }) => name === "name");
  if (!section) return names;
  const reader = new Reader(bytes, "name section", section.start, section.end);
  try {
    while (!reader.isAtEnd) {
      const id = reader.byte("a part's number");
      const part = reader.part(reader.u32("a part's size"), "function names");
      if (id === FUNCTION_NAMES) fillNames(part, names);
    }
  } catch {
    return names;
  }
  return names;
}

function fillNames(part: Reader, names: Map<number, string>): void {
  const count = part.count("names");
  for (let index = 0; index < count; index++) names.set(part.u32("an index"), part.text("a name"));
}
