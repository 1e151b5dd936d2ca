// A reader of the Prometheus text format, for a few metrics of a page that nobody vouches for.

/** Hears of a sample. The labels are those of this one sample alone. */
export type SampleVisitor = (name: string, labels: ReadonlyMap<string, string>, value: number) => void;

/** Characters of the longest line that is read; the longest that an engine writes has some 2,000. */
const MAX_LINE = 65_536;

// No two parts of a pattern can match the same text in a row: none ever goes back far, and time stays linear.
const LABEL = /[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*/sy;
const BRACE = /[ \t]*\}/y;
const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;
const INFINITE = /^([+-]?)inf(?:inity)?$/i;
const NOT_A_NUMBER = /^[+-]?nan$/i;

/**
 * Visits the samples of the wanted metrics, in order: the Prometheus text format 0.0.4, and OpenMetrics, of which timestamps,
 * exemplars and comments are passed over. What is not a sample is passed over line by line. Never throws, and takes time and
 * memory in proportion to the text.
 */
export function visitSamples(text: string, wanted: ReadonlySet<string>, visit: SampleVisitor): void {
  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf("\n", at);
    const end = newline < 0 ? text.length : newline;
    const start = blankEnd(text, at, end);
    const nameEnd = wordEnd(text, start, end);
    const name = text.slice(start, nameEnd);
    if (wanted.has(name) && end - at <= MAX_LINE) visitLine(name, text.slice(nameEnd, end), visit);
    at = end + 1;
  }
}

/** `line` is what follows the name. */
function visitLine(name: string, line: string, visit: SampleVisitor): void {
  const labels = new Map<string, string>();
  const open = blankEnd(line, 0, line.length);
  const end = line[open] === "{" ? readLabels(line, open + 1, labels) : open;
  // Without labels there is a blank between name and value.
  const value = end > 0 ? sampleValue(line.slice(end)) : undefined;
  if (value !== undefined) visit(name, labels, value);
}

/** Reads labels up to the closing brace, and returns the place behind it, -1 where they are broken. */
function readLabels(line: string, start: number, labels: Map<string, string>): number {
  BRACE.lastIndex = start;
  for (LABEL.lastIndex = start; ; ) {
    const found = LABEL.exec(line);
    if (!found) break;
    labels.set(found[1]!, unescaped(found[2]!));
    BRACE.lastIndex = LABEL.lastIndex;
    if (line[LABEL.lastIndex] !== ",") break;
    BRACE.lastIndex = ++LABEL.lastIndex;
  }
  return BRACE.test(line) ? BRACE.lastIndex : -1;
}

function unescaped(value: string): string {
  if (!value.includes("\\")) return value;
  return value.replace(/\\(.)/gs, (whole, mark: string) => {
    if (mark === "n") return "\n";
    return mark === "\\" || mark === '"' ? mark : whole;
  });
}

/** The value in front of a timestamp and an exemplar, undefined where there is something else. */
function sampleValue(text: string): number | undefined {
  const exemplar = text.indexOf(" #");
  const sample = exemplar < 0 ? text : text.slice(0, exemplar);
  const [value, timestamp, more] = sample.trim().split(/[ \t]+/, 3);
  if (more !== undefined || (timestamp !== undefined && numberOf(timestamp) === undefined)) return undefined;
  return numberOf(value!);
}

/** Of `Number()` alone, an empty text would be 0, and 0x10 a number. */
function numberOf(text: string): number | undefined {
  if (NUMBER.test(text)) return Number(text);
  const infinite = INFINITE.exec(text);
  if (infinite) return infinite[1] === "-" ? -Infinity : Infinity;
  return NOT_A_NUMBER.test(text) ? Number.NaN : undefined;
}

function blankEnd(text: string, start: number, end: number): number {
  let at = start;
  while (at < end && (text[at] === " " || text[at] === "\t")) at++;
  return at;
}

/** The end of a metric's name. */
function wordEnd(text: string, start: number, end: number): number {
  let at = start;
  while (at < end && isWord(text.charCodeAt(at))) at++;
  return at;
}

/** A to Z, a to z, 0 to 9 with the colon behind it, and _. */
function isWord(code: number): boolean {
  const letter = code | 0x20;
  return (letter >= 0x61 && letter <= 0x7a) || (code >= 0x30 && code <= 0x3a) || code === 0x5f;
}
