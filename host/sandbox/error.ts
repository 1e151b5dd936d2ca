// The one error of the sandbox.

/** Why a module is refused, as one sentence that names what was found. */
export class AdmissionError extends Error {
  override readonly name = "AdmissionError";
}

/** Text of the module's own, quoted and cut: it may be long and hold any character. */
export function quoted(text: string): string {
  const cut = text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}...` : text;
  return JSON.stringify(cut);
}

const MAX_QUOTED = 80;
