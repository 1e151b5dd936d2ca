// The address of a worker: what is allowed in it, and the form in which it is used.

const EXAMPLE = "an http or https URL such as http://127.0.0.1:9001";

/** What is wrong with the URL of a worker, to follow its name; undefined where it is good. Passwords are not repeated. */
export function urlBreach(text: string): string | undefined {
  const found = `found "${text.slice(0, 200).replace(/\/\/[^/]*@/, "//***@")}"`;
  if (!/^https?:\/\/[^/\s\\][^\s\\]*$/i.test(text) || !URL.canParse(text))
    return `must be ${EXAMPLE}, ${found}`;
  if (/^[^/]*\/\/[^/?#]*@/.test(text)) return `must not carry a user name or password, ${found}`;
  if (new URL(text).port === "0") return `must not have the port 0, ${found}`;
  if (text.includes("?")) return `must not have a query, ${found}`;
  if (text.includes("#")) return `must not have a fragment, ${found}`;
  return undefined;
}

/** The URL without the slash at its end, so that a request's path can follow. */
export function baseUrl(text: string): string {
  return new URL(text).href.replace(/\/+$/, "");
}
