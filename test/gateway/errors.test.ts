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

  it.each([
    [400, "invalid_request_error"],
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
