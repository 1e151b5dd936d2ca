// The one error of the sandbox.

/** Why a module is refused, as one sentence that names what was found. */
export class AdmissionError extends Error {
  override readonly name = "AdmissionError";
}

const MAX_QUOTED = 80;
const MAX_DETAIL = 300;

/** Text of the module's own, quoted and cut: it may be long and hold any character. */
export function quoted(text: string): string {
  return visible(JSON.stringify(cut(text, MAX_QUOTED)));
}

/** V8's words about a module, in which the module's own names stand as they are. */
export function oneLine(text: string): string {
  return visible(cut(text, MAX_DETAIL));
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}...` : text;
}

/** Without characters that break a line or direct a terminal. */
function visible(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`);
}
