// The shape of a policy's manifest. What no shape can say is in manifest-rules.ts.
import Type, { type Static } from "typebox";
import { MAX_CAPACITY } from "../abi/frame.js";
import { FAILURES } from "../abi/reasons.js";

const strict = { additionalProperties: false };
const Line = Type.String({ pattern: "^\\S[^\\n]*\\n?$", allowed: "one line of text" });
const TypeName = Type.String({
  pattern: "^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
  maxLength: 64,
  allowed: "lower-case words joined by dashes, at most 64 characters",
});
const ParameterSchema = Type.Object(
  {
    type: Type.Enum(["integer", "number", "boolean", "enum"]),
    minimum: Type.Optional(Type.Number()),
    maximum: Type.Optional(Type.Number()),
    exclusiveMinimum: Type.Optional(Type.Number()),
    default: Type.Optional(
      Type.Unsafe<number | boolean | string | null>({
        type: ["number", "boolean", "string", "null"],
        allowed: "a number, true, false, text or null",
      }),
    ),
    nullable: Type.Optional(Type.Boolean()),
    values: Type.Optional(Type.Array(Type.String({ minLength: 1 }), { minItems: 1 })),
    description: Type.Optional(Type.String()),
  },
  strict,
);
const Row = { type: "integer", minimum: 0, maximum: MAX_CAPACITY - 1 };
const ExpectSchema = Type.Object(
  {
    row: Type.Unsafe<number | number[] | null>({
      ...{
        ...Row,
        type: ["integer", "array", "null"],
        items: { ...Row, allowed: `a row from 0 to ${Row.maximum}` },
      },
      ...{ minItems: 1, allowed: `a row from 0 to ${Row.maximum}, a list of rows, or null` },
    }),
    reason: Type.String(),
    failure: Type.Optional(Type.Enum([...FAILURES])),
  },
  strict,
);
const StepSchema = Type.Object({ expect: ExpectSchema });
const ExampleSchema = Type.Object({
  name: Type.Optional(Type.String({ minLength: 1 })),
  parameters: Type.Optional(Type.Unsafe<Record<string, unknown>>({ type: "object" })),
  steps: Type.Optional(Type.Array(StepSchema, { minItems: 1 })),
  expect: Type.Optional(ExpectSchema),
});
export const ManifestSchema = Type.Object(
  {
    abi: Type.Unsafe<1>({ const: 1, allowed: "1, the only ABI that this host speaks" }),
    type: TypeName,
    aliases: Type.Optional(Type.Array(TypeName)),
    version: Type.String({
      pattern: "^\\d+\\.\\d+\\.\\d+([-+][0-9A-Za-z.+-]+)?$",
      allowed: "a version such as 1.0.0",
    }),
    summary: Line,
    description: Type.Optional(Type.String()),
    module: Type.Optional(
      Type.String({
        pattern: "^[^/\\\\.][^/\\\\]*\\.wasm$",
        allowed: "the plain name of a .wasm file, without a directory",
      }),
    ),
    reads: Type.Optional(Type.Array(Type.String())),
    stateful: Type.Optional(Type.Boolean()),
    parameters: Type.Optional(
      Type.Unsafe<Record<string, Static<typeof ParameterSchema>>>({
        type: "object",
        additionalProperties: ParameterSchema,
      }),
    ),
    reasons: Type.Optional(
      Type.Unsafe<Record<string, string>>({
        type: "object",
        additionalProperties: {
          ...{ type: "string", pattern: "^[a-z][a-z0-9_]*$" },
          allowed: "a name of lower-case letters, digits and _",
        },
      }),
    ),
    examples: Type.Optional(Type.Array(ExampleSchema)),
  },
  strict,
);

export type RawManifest = Static<typeof ManifestSchema>;
export type RawParameter = Static<typeof ParameterSchema>;
export type RawStep = Static<typeof StepSchema>;
export type RawExample = Static<typeof ExampleSchema> & Readonly<Record<string, unknown>>;
