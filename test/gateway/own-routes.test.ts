// Requests that no worker is asked for: they take no body, and whoever sends one is answered at once.
import { expect, it } from "vitest";
import { dataPlaneOf } from "./data-plane.js";
import { gateway, until, upstream } from "./fixture.js";
import { Wire } from "./wire.js";

const JSON_TYPE = "content-type: application/json";

it.each([
  ["an unknown path", "POST /v1/nope", [JSON_TYPE], 404, "unknown_path"],
  ["an unknown path, in chunks", "POST /v1/nope", ["transfer-encoding: chunked"], 404, "unknown_path"],
  ["an unknown path, with a type that is none", "POST /v1/nope", ["content-type: ;;"], 404, "unknown_path"],
  ["an unknown path of Anthropic's", "POST /v1/messages/batches", [JSON_TYPE], 404, undefined],
  ["a path that is no URL", "POST /%zz", [JSON_TYPE], 400, "invalid_request"],
  ["an endpoint by another method", "PUT /v1/chat/completions", [JSON_TYPE], 404, "unknown_path"],
  [
    "a route of the gateway's own by another method",
    "POST /health",
    ["content-type: text/plain"],
    404,
    "unknown_path",
  ],
  ["a method that is hardly known", "PROPFIND /v1/nope", [JSON_TYPE], 404, "unknown_path"],
  ["a health check", "GET /health", [JSON_TYPE], 200, undefined],
  ["the list of models", "GET /v1/models", [JSON_TYPE], 200, undefined],
  ["an expectation that nobody meets", "POST /v1/nope", ["expect: more"], 417, undefined],
])(
  "%s is answered before its body has come, which is held nowhere and not waited for",
  async (_name, line, lines, status, code) => {
    const worker = await upstream((_request, response) => response.end("{}"));
    const { url } = await gateway({ urls: [worker.url] });
    const wire = new Wire(url);
    const isChunked = lines.some((each) => each.includes("chunked"));
    const framing = isChunked ? [] : ["content-length: 1000000"];
    const body = isChunked ? "10000\r\n" : "";
    wire.send([`${line} HTTP/1.1`, "host: x", ...lines, ...framing, "", `${body}x`].join("\r\n"));
    const [answer] = await wire.answers(1);
    expect(answer!.status).toBe(status);
    const isMessages = line.includes("/v1/messages");
    if (isMessages)
      expect(JSON.parse(answer!.body)).toMatchObject({ type: "error", error: { type: "not_found_error" } });
    if (code !== undefined) expect(JSON.parse(answer!.body).error).toMatchObject({ code });
    // It goes on sending, a little at a time, and is left.
    const trickle = setInterval(() => wire.send("x"), 500);
    await until(() => wire.end !== undefined).finally(() => clearInterval(trickle));
    expect(await dataPlaneOf(url)).toMatchObject({ requests_in_flight: 0, body_bytes: 0 });
  },
  30_000,
);
