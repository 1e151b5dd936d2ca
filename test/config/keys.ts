// Every key that a config can have.
import { ConfigSchema } from "../../host/config/schema.js";

interface Shape {
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly items?: Shape;
}

/** Keys whose value is one, whatever it is made of. */
const WHOLE: ReadonlySet<string | undefined> = new Set(["sources", "tenant", "token", "api_key"]);

/** What a config can say, as `limits.body`, and `workers.url` for that of each worker. */
export function keysOf(
  { properties, items }: Shape = ConfigSchema as unknown as Shape,
  path: readonly string[] = [],
): string[] {
  if (WHOLE.has(path.at(-1))) return [path.join(".")];
  if (items?.properties) return keysOf(items, path);
  if (!properties) return [path.join(".")];
  return Object.entries(properties).flatMap(([key, shape]) => keysOf(shape, [...path, key]));
}

/** The value of such a key; of a list of mappings that of the first that has it. */
export function valueAt(value: unknown, key: string): unknown {
  return key.split(".").reduce<unknown>((inner, name) => {
    const mappings = (Array.isArray(inner) ? inner : [inner]) as (Record<string, unknown> | undefined)[];
    return mappings.find((mapping) => mapping?.[name] !== undefined)?.[name];
  }, value);
}
