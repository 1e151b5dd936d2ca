// A request as it is written.

/** What no header may have: a line break, or a character that would become one, of those that are more than a byte. */
const ILLEGAL = /[^\t\x20-\x7e\x80-\xff]/;
const PATH = /^[\x21-\x7e\x80-\xff]+$/;

/**
 * The head of a request, a character for a byte. `headers` are names and values in turn; `length` is that of the body,
 * undefined where it has none. Throws a TypeError for what would break out of its line.
 */
export function requestHead(
  method: string,
  path: string,
  host: string,
  headers: readonly string[],
  length: number | undefined,
): string {
  if (!PATH.test(path)) throw new TypeError("the path of a request has a character that is not allowed");
  let head = `${method} ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`;
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i]!;
    const value = headers[i + 1]!;
    if (ILLEGAL.test(name) || ILLEGAL.test(value))
      throw new TypeError(`the header ${JSON.stringify(name)} has a character that is not allowed`);
    head += `${name}: ${value}\r\n`;
  }
  return length === undefined ? `${head}\r\n` : `${head}content-length: ${length}\r\n\r\n`;
}
