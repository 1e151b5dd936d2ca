import { describe, expect, it } from "vitest";
import { errorBody } from "../../host/gateway/errors.js";

describe("error bodies", () => {
  it("has OpenAI's shape", () => {
    expect(JSON.parse(errorBody("openai", { status: 404, code: "model_not_found", message: "m" }))).toEqual({
      error: { message: "m", type: "invalid_request_error", param: null, code: "model_not_found" },
    });
    expect(JSON.parse(errorBody("openai", { status: 502, code: "c", message: "m" })).error.type).toBe(
      "server_error",
    );
  });

  it("tells a client that its transfer coding is its own mistake, although the status is a server's", () => {
    const error = { status: 501, code: "transfer_coding_unknown", message: "m" };
    for (const style of ["openai", "responses", "anthropic"] as const)
      expect(JSON.parse(errorBody(style, error)).error.type).toBe("invalid_request_error");
    const workers = { ...error, code: "worker_error" };
    expect(JSON.parse(errorBody("openai", workers)).error.type).toBe("server_error");
    expect(JSON.parse(errorBody("anthropic", workers)).error.type).toBe("api_error");
  });

  it("has OpenAI's word for a request that comes too soon", () => {
    const error = { status: 429, code: "queue_full", message: "m" };
    expect(JSON.parse(errorBody("openai", error)).error.type).toBe("rate_limit_error");
  });

  it.each([
    [400, "invalid_request_error"],
    [408, "invalid_request_error"],
    [404, "not_found_error"],
    [413, "request_too_large"],
    [502, "api_error"],
    [503, "api_error"],
  ])("has Anthropic's shape for %i", (status, type) => {
    expect(JSON.parse(errorBody("anthropic", { status, code: "c", message: "m" }))).toEqual({
      type: "error",
      error: { type, message: "m" },
    });
  });
});
