// The token rule, and that generated text keeps to it.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { marker, OPAQUE_TOKENS, tokenize, tokenizeOpaque } from "../../host/worker/tokenizer.js";
import { writeWords } from "../../host/worker/words.js";

describe("tokenize", () => {
  it.each([
    ["", 0],
    ["one", 1],
    ["one two", 2],
    ["  one\n\ttwo ", 3],
    [" \n", 1],
    ["a".repeat(16), 1],
    ["a".repeat(17), 2],
    [`x ${"a".repeat(33)}`, 4],
    ["one\u00a0two\u3000three", 3],
  ])("cuts %j into %i tokens", (text, count) => {
    expect(tokenize(text)).toHaveLength(count);
  });

  it("tells words and their leading white space apart", () => {
    const [plain, blank, other] = ["word", " word", " ward"].map((text) => tokenize(text)[0]);
    expect(new Set([plain, blank, other]).size).toBe(3);
  });

  it("cuts a text that grows by whole words into the same tokens and more", () => {
    const word = fc.stringMatching(/^[a-z]{1,40}$/);
    fc.assert(
      fc.property(fc.array(word), fc.array(word), (head, tail) => {
        const start = tokenize(head.join(" "));
        const all = tokenize([...head, ...tail].join(" "));
        expect(all.slice(0, start.length)).toEqual(start);
      }),
    );
  });
});

describe("markers and opaque parts", () => {
  it("gives each role a token that its name as text does not have", () => {
    expect(marker("user")).not.toBe(marker("assistant"));
    expect(marker("user")).not.toBe(tokenize("user")[0]);
  });

  it("counts an image as a few tokens that depend on it but not on cache_control", () => {
    const tokensOf = (part: unknown) => {
      const into: number[] = [];
      tokenizeOpaque(part, into);
      return into;
    };
    const image = { type: "image", source: { data: "AAAA" } };
    expect(tokensOf(image)).toHaveLength(OPAQUE_TOKENS);
    expect(tokensOf({ ...image, cache_control: { type: "ephemeral" } })).toEqual(tokensOf(image));
    expect(tokensOf({ type: "image", source: { data: "BBBB" } })).not.toEqual(tokensOf(image));
  });
});

describe("writeWords", () => {
  it("writes text of exactly so many tokens, put together or apart", () => {
    fc.assert(
      fc.property(fc.array(fc.integer()), fc.nat({ max: 300 }), fc.boolean(), (prompt, count, continues) => {
        const words = writeWords(prompt, count, continues);
        const apart = words.flatMap((word) => tokenize(word));
        expect(tokenize(words.join(""))).toEqual(apart);
        expect(apart).toHaveLength(count);
      }),
    );
  });

  it("depends on the prompt alone", () => {
    expect(writeWords([1, 2], 8, false)).toEqual(writeWords([1, 2], 8, false));
    expect(writeWords([1, 2], 8, false)).not.toEqual(writeWords([2, 1], 8, false));
  });

  it("continues a text as more tokens of it", () => {
    const text = "Once upon a time";
    const prompt = tokenize(text);
    const answer = writeWords(prompt, 5, true).join("");
    expect(tokenize(text + answer)).toEqual([...prompt, ...tokenize(answer)]);
  });
});
