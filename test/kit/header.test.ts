// C's header against the frame's layout.
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { COLUMNS, FIELDS, HEADER_BYTES } from "../../host/abi/frame.js";
import { REASON_NAMES } from "../../host/abi/reasons.js";
import { ROOT } from "../docs/blocks.js";

const header = readFileSync(`${ROOT}templates/c/hawser.h`, "utf8");

it("hawser.h has every field and column at its place", () => {
  for (const { name, type, offset } of FIELDS) {
    const [ctype, argument, at] =
      type === "u64[16]" ? ["u64", "i32 level", "level"] : [type, "void", undefined];
    const start = `static inline ${ctype} hawser_${name}(${argument}) {`;
    const line = header.split("\n").find((text) => text.startsWith(start));
    expect(line, name).toContain(`(hawser_frame + ${offset})${at ? `)[${at}]` : ""}`);
  }
  for (const { name, perRow } of COLUMNS.filter((column) => column.name !== "eligible")) {
    expect(header).toContain(
      `const i32 *hawser_${name}(void) { return (const i32 *)(hawser_frame + ${HEADER_BYTES} + ${perRow} * hawser_stride); }`,
    );
  }
});

it("hawser.h has the shared reasons in their order", () => {
  expect(header).toContain(
    `enum { ${REASON_NAMES.map((name) => name.toUpperCase()).join(", ")}, FIRST_OWN = 256 };`,
  );
});
