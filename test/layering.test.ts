// The arrows between the rooms of host/ point one way.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const HOST = fileURLToPath(new URL("../host", import.meta.url));

/** What each room may import of ours. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  abi: [],
  yaml: [],
  sandbox: [],
  session: [],
  transport: [],
  metrics: [],
  worker: [],
  policy: ["abi", "sandbox", "yaml"],
  kit: ["abi", "policy", "sandbox", "yaml"],
  routing: ["abi", "policy"],
  decisions: ["abi", "policy", "routing"],
  fleet: ["routing", "yaml"],
  config: ["abi", "decisions", "fleet", "gateway", "policy", "session", "yaml"],
  gateway: ["decisions", "fleet", "metrics", "routing", "session", "transport"],
  cli: [
    "abi",
    "config",
    "decisions",
    "fleet",
    "gateway",
    "kit",
    "policy",
    "routing",
    "session",
    "worker",
    "yaml",
  ],
};

interface Import {
  readonly file: string;
  /** Of nothing but types, so that nothing is loaded. */
  readonly isType: boolean;
  readonly target: string;
}

function importsOf(room: string): Import[] {
  const files = readdirSync(join(HOST, room), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  return files.flatMap((file) => {
    const text = readFileSync(join(HOST, room, file), "utf8");
    const found = text.matchAll(/(?:(\b(?:im|ex)port type\b[^;"]*?)?from|import)\s*\(?\s*"([^"]+)"/g);
    return [...found].map(([, type, target]) => ({
      ...{ file: `${room}/${file}`, isType: type !== undefined, target: target! },
    }));
  });
}

const rooms = readdirSync(HOST).filter((name) => statSync(join(HOST, name)).isDirectory());

describe("the rooms of host/", () => {
  it("are all known here", () => {
    expect(rooms.sort()).toEqual(Object.keys(ALLOWED).sort());
  });

  it.each(rooms)("%s imports only what it may", (room) => {
    const ours = importsOf(room).filter(({ target }) => target.startsWith("../"));
    const wrong = ours.filter(({ target }) => !ALLOWED[room]!.includes(target.split("/")[1]!));
    expect(wrong).toEqual([]);
    if (ALLOWED[room]!.length > 0) expect(ours.length).toBeGreaterThan(0);
  });

  it.each(["decisions", "fleet", "gateway"])("config knows of %s the types of its options alone", (room) => {
    const taken = importsOf("config").filter(({ target }) => target.includes(`/${room}/`));
    expect(taken.filter(({ isType, target }) => !isType || target !== `../${room}/options.js`)).toEqual([]);
    expect(taken.length).toBeGreaterThan(0);
  });

  it("routing knows no network, no file, no YAML and no clock", () => {
    const foreign = importsOf("routing").filter(({ target }) => !target.startsWith("."));
    expect(new Set(foreign.map(({ target }) => target))).toEqual(new Set(["node:crypto"]));
    for (const file of readdirSync(join(HOST, "routing"))) {
      expect(readFileSync(join(HOST, "routing", file), "utf8")).not.toMatch(
        /\b(Date|performance|Math\.random|setTimeout)\b/,
      );
    }
  });

  it("sandbox knows bytes alone", () => {
    const foreign = importsOf("sandbox").filter(({ target }) => !target.startsWith("./"));
    expect(foreign).toEqual([]);
  });
});
