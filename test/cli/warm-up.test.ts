// What the start does before it listens.
import { expect, it } from "vitest";
import { warmUp } from "../../host/cli/warm-up.js";
import { parseConfig } from "../../host/config/config.js";

function config(text: string) {
  return parseConfig(`workers: [{ id: a, url: http://127.0.0.1:1 }]\n${text}`, "warm-up.yaml").config!;
}

it.each(["", "session: { mode: hard }", "session: { full_determinism: true }", "streams: { peek: true }"])(
  "has requests served through the policy and the settings of the config, and leaves nothing open: %s",
  async (text) => {
    const open = () => process.getActiveResourcesInfo().filter((name) => name.startsWith("TCP")).length;
    const before = open();
    expect(await warmUp(config(text))).toBeGreaterThan(0);
    while (open() > before) await new Promise((resolve) => setTimeout(resolve, 5));
  },
);
