// The shape of the names of the models that a worker serves.
import Type from "typebox";

/** That none is repeated is checked by rules. */
export const ModelsSchema = Type.Array(
  Type.String({
    pattern: "^[^\\u0000-\\u001f\\u007f]{1,256}$",
    allowed: "a model name of 1 to 256 characters without control characters",
  }),
  {
    ...{ minItems: 1, maxItems: 256 },
    allowed: "a list of 1 to 256 model names",
  },
);
