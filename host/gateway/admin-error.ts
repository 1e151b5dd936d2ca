// What is wrong with a call of an operator.

import type { GatewayError } from "./errors.js";

/** The parameters of a call. */
export type Query = Readonly<Record<string, string | undefined>>;

/** A refusal on its way to the caller. */
export class AdminError extends Error {
  constructor(readonly error: GatewayError) {
    super(error.message);
  }
}

/** A parameter that is misspelt, or useless beside the others, would change what is shown without a word. */
export function refuseOthers(query: Query, allowed: readonly string[]): void {
  for (const [name, value] of Object.entries(query)) {
    const message = allowed.includes(name)
      ? `the parameter ${name} is given more than once`
      : `there is no parameter ${JSON.stringify(name.slice(0, 40))} here, allowed ${allowed.length === 0 ? "are none" : `are ${allowed.join(", ")}`}`;
    if (!allowed.includes(name) || typeof value !== "string")
      throw new AdminError({ status: 400, code: "invalid_query", message });
  }
}
