import { describe, expect, it } from "vitest";
import { droppedHeaders, requestHeaders, responseHeaders } from "../../host/gateway/headers.js";

const dropsAll = droppedHeaders([]);

describe("request headers", () => {
  it("forwards those of the client's credentials that are named", () => {
    const raw = ["Authorization", "a", "X-API-Key", "b", "Cookie", "c"];
    expect(requestHeaders(raw, droppedHeaders(["authorization", "cookie"]))).toEqual([
      ...["Authorization", "a", "Cookie", "c"],
    ]);
  });

  it("keeps case, order and duplicates", () => {
    const raw = ["X-A", "1", "x-a", "2", "Content-Type", "application/json", "X-Session-Id", "s"];
    expect(requestHeaders(raw, dropsAll)).toEqual(raw);
  });

  it("drops hop-by-hop headers, the transport's own and the client's credentials, whatever their case", () => {
    const dropped = [
      ...[
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
      ],
      ...[
        "Transfer-Encoding",
        "Upgrade",
        "Host",
        "Content-Length",
        "Expect",
        "Authorization",
        "X-API-Key",
        "COOKIE",
      ],
      ...["x-hawser-pin", "X-Hawser-Affinity"],
    ];
    expect(requestHeaders([...dropped.flatMap((name) => [name, "x"]), "Accept", "y"], dropsAll)).toEqual([
      "Accept",
      "y",
    ]);
  });

  it("drops what Connection nominates, in every one of its lines", () => {
    const raw = [
      "X-One",
      "1",
      "Connection",
      "close, X-One",
      "X-Two",
      "2",
      "connection",
      "x-two",
      "X-Three",
      "3",
    ];
    expect(requestHeaders(raw, dropsAll)).toEqual(["X-Three", "3"]);
  });
});

describe("response headers", () => {
  it("keeps duplicates, drops hop-by-hop and the gateway's own names", () => {
    const raw = [
      "Set-Cookie",
      "a",
      "set-cookie",
      "b",
      "Transfer-Encoding",
      "chunked",
      "X-Hawser-Worker",
      "liar",
      "X",
      "\xe9",
    ];
    expect(responseHeaders(raw)).toEqual([...["Set-Cookie", "a", "set-cookie", "b", "X", "\xe9"]]);
  });

  it("passes content-encoding and content-length", () => {
    const raw = ["content-encoding", "gzip", "content-length", "12"];
    expect(responseHeaders(raw)).toEqual(raw);
  });
});
