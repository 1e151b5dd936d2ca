import { describe, expect, it } from "vitest";
import { requestHead } from "../../host/transport/request.js";

describe("the head of a request", () => {
  it("has its headers as they are, and the body's length where there is one", () => {
    const headers = ["X-A", "1", "x-a", "\xe9\t,"];
    const start = "POST /v1?q HTTP/1.1\r\nhost: h:1\r\nconnection: keep-alive\r\nX-A: 1\r\nx-a: \xe9\t,\r\n";
    expect(requestHead("POST", "/v1?q", "h:1", headers, 0)).toBe(`${start}content-length: 0\r\n\r\n`);
    expect(requestHead("POST", "/v1?q", "h:1", headers, undefined)).toBe(`${start}\r\n`);
  });

  it.each(["\r\nx: y", "a\nb", "a\rb", "a\0b", "a\u010ab", "a\u2713"])("is none with %j in it", (text) => {
    expect(() => requestHead("GET", "/", "h", ["a", text], undefined)).toThrow(TypeError);
    expect(() => requestHead("GET", "/", "h", [text, "a"], undefined)).toThrow(TypeError);
    expect(() => requestHead("GET", `/${text}`, "h", [], undefined)).toThrow(TypeError);
  });

  it("is none with a blank in its path", () => {
    expect(() => requestHead("GET", "/a b", "h", [], undefined)).toThrow("the path of a request");
  });
});
