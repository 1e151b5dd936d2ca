// The dashboard, the alerts and the operator's handbook: what they name exists, and what exists is told.
import { existsSync, readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { ALL_TOLD, metered } from "../gateway/metered.js";
import type { Exposition } from "../metrics/exposition.js";
import { ROOT } from "./blocks.js";
import { examine } from "./promql.js";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<"summary" | "description" | "runbook", string>>;
}

interface Target {
  readonly expr: string;
  readonly legendFormat: string;
  readonly refId: string;
  readonly datasource: unknown;
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly datasource?: unknown;
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
  readonly targets?: readonly Target[];
}

interface Variable {
  readonly name: string;
  readonly type: string;
  readonly query: string | { readonly query: string };
}

interface Dashboard {
  readonly uid: string;
  readonly schemaVersion: number;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
  readonly annotations: { readonly list: readonly { readonly expr: string; readonly textFormat: string }[] };
}

const read = (file: string) => readFileSync(`${ROOT}docs/${file}`, "utf8");
const HANDBOOK = `${ROOT}docs/operate.md`;
const handbook = existsSync(HANDBOOK) ? readFileSync(HANDBOOK, "utf8") : "";

const { groups } = parse(read("prometheus-alerts.yaml")) as { groups: { name: string; rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const dashboard = JSON.parse(read("grafana-dashboard.json")) as Dashboard;
const panels = dashboard.panels.filter(({ type }) => type !== "row");
const targets = panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));

let page: Exposition;
beforeAll(async () => {
  const all = metered([["m"], ["m", "n"]], { withProcess: true });
  Object.assign(all.told, ALL_TOLD);
  all.fleet.add({ id: "limited", url: "http://10.0.0.9:8000", models: ["m"], maxInFlight: 7 }, "admin");
  await all.fleet.start();
  page = await all.page();
  const empty = [...page.families].filter(
    ([name, { samples }]) => name.startsWith("hawser_") && samples.length === 0,
  );
  expect(empty).toEqual([]);
});

/** An expression of the dashboard as Grafana sends it. */
const sent = (expr: string) => expr.replaceAll("$__rate_interval", "5m");

/** The labels that a text has filled in. */
function labelsIn(text: string): string[] {
  return [...text.matchAll(/\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}/g)].map(([, label]) => label!);
}

/** Names of metrics in a text, each as that of its family. */
function namesIn(text: string): Set<string> {
  const names = [...text.matchAll(/\bhawser_[a-z_]*[a-z]\b/g)].map(([name]) => name);
  return new Set(names.map(familyOf));
}

function familyOf(name: string): string {
  const family = name.replace(/_(bucket|sum|count)$/, "");
  return page.families.get(family)?.type === "histogram" ? family : name;
}

/** Names of the gateway's own metrics. */
const exposed = () => [...page.families.keys()].filter((name) => name.startsWith("hawser_"));

describe("the alerts", () => {
  it("have names of their own, in groups of their own", () => {
    expect(new Set(groups.map(({ name }) => name)).size).toBe(groups.length);
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    expect(rules.length).toBeGreaterThan(12);
  });

  it.each(rules.map((rule) => [rule.alert, rule] as const))("%s asks for what there is", (_, rule) => {
    const { labels } = examine(rule.expr, page);
    const told = labelsIn(Object.values(rule.annotations).join());
    for (const label of told) expect([...labels]).toContain(label);
  });

  it.each(rules.map((rule) => [rule.alert, rule] as const))("%s says what it is about", (_, rule) => {
    const keys = ["alert", "annotations", "expr", "for", "labels"];
    expect(Object.keys(rule).sort()).toEqual(keys);
    expect(rule.for).toMatch(/^[1-9]\d*[smhd]$/);
    expect(rule.labels).toEqual({ severity: expect.stringMatching(/^(info|warning|critical)$/) });
    expect(Object.keys(rule.annotations)).toEqual(["summary", "description", "runbook"]);
    for (const text of Object.values(rule.annotations)) expect(text.length).toBeGreaterThan(10);
  });

  it.each(rules.map(({ alert, annotations }) => [alert, annotations.runbook] as const))(
    "%s leads to a heading of the handbook",
    (_, runbook) => {
      const [file, anchor] = runbook.split("#");
      expect(file).toBe("docs/operate.md");
      const headings = [...handbook.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => slugOf(heading!));
      expect(headings).toContain(anchor);
    },
  );
});

/** As GitHub makes an anchor of a heading. */
function slugOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-");
}

describe("the dashboard", () => {
  it.each(targets.map((target) => [`${target.title} ${target.refId}`, target] as const))(
    "asks for what there is: %s",
    (_, { expr, legendFormat }) => {
      const { labels } = examine(sent(expr), page);
      for (const label of labelsIn(legendFormat)) expect([...labels]).toContain(label);
    },
  );

  it("tells lines apart: what several lines have in common by their labels is in no legend alone", () => {
    for (const { expr, legendFormat, title } of targets) {
      const { labels } = examine(sent(expr), page);
      const shown = new Set(labelsIn(legendFormat));
      const hidden = [...labels].filter((label) => !shown.has(label) && !["job", "le"].includes(label));
      expect([title, legendFormat, hidden]).toEqual([title, legendFormat, []]);
    }
  });

  it("asks in its variables and marks for what there is", () => {
    for (const { query, type } of dashboard.templating.list) {
      if (type !== "query") continue;
      const text = (query as { query: string }).query;
      const [, selector, label] = /^label_values\((.*), (\w+)\)$/.exec(text)!;
      expect([...examine(selector!, page).labels]).toContain(label);
    }
    for (const { expr, textFormat } of dashboard.annotations.list) {
      const { labels } = examine(sent(expr), page);
      for (const label of labelsIn(textFormat)) expect([...labels]).toContain(label);
    }
  });

  it("uses no variable that it does not have", () => {
    const known = ["__rate_interval", ...dashboard.templating.list.map(({ name }) => name)];
    const used = [...JSON.stringify(dashboard).matchAll(/\$\{?(\w+)/g)].map(([, name]) => name!);
    expect([...new Set(used)].filter((name) => !known.includes(name) && name !== "__all")).toEqual([]);
  });

  it("asks the data source that is chosen, everywhere", () => {
    const chosen = { type: "prometheus", uid: expect.stringMatching(/^\$\{DS_PROMETHEUS\}$/) };
    expect(dashboard.templating.list[0]).toMatchObject({ name: "DS_PROMETHEUS", type: "datasource" });
    for (const { datasource } of [...panels, ...targets]) expect(datasource).toEqual(chosen);
  });

  it("has panels that say what they show, and lie side by side", () => {
    expect(dashboard.uid).toBe("hawser");
    expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(39);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, description, targets = [], type, gridPos } of dashboard.panels) {
      if (type !== "row")
        expect([title, description ?? "", targets.length > 0]).toEqual([
          title,
          expect.stringMatching(/\.$/),
          true,
        ]);
      const { x, y, w, h } = gridPos;
      expect(x + w).toBeLessThanOrEqual(24);
      for (let column = x; column < x + w; column++) {
        for (let line = y; line < y + h; line++) {
          expect([title, taken.has(`${column} ${line}`)]).toEqual([title, false]);
          taken.add(`${column} ${line}`);
        }
      }
    }
  });

  it("shows every metric of the gateway", () => {
    const shown = new Set(targets.flatMap(({ expr }) => [...examine(sent(expr), page).names].map(familyOf)));
    expect(exposed().filter((name) => !shown.has(name))).toEqual([]);
  });
});

describe("docs/operate.md", () => {
  it("tells of every metric of the gateway", () => {
    const told = namesIn(handbook);
    expect(exposed().filter((name) => !told.has(name))).toEqual([]);
  });

  it("tells of no metric that there is not", () => {
    const known = new Set(exposed());
    expect([...namesIn(handbook)].filter((name) => !known.has(name))).toEqual([]);
  });
});

describe("an expression is refused", () => {
  it.each([
    ["that cannot be parsed", "sum(hawser_bindings", /parsed/],
    ["that names no metric", "hawser_sessions > 1", /hawser_sessions is not on the page/],
    ["that names a histogram without saying what of it", "hawser_inter_chunk_seconds > 1", /not on the page/],
    ["with a label that the metric does not have", 'hawser_bindings{worker="w0"}', /no label worker/],
    ["with a value that the label never has", 'hawser_worker_state{state="broken"}', /no sample/],
    ["that groups by what is not there", "sum by (model) (hawser_bindings)", /no label model/],
    ["of the growth of a gauge", "rate(hawser_bindings[5m])", /is a gauge/],
    ["of the growth of a moment", "rate(hawser_retries_total)", /another kind of vector/],
    [
      "of a quantile whose buckets are summed away",
      "histogram_quantile(0.9, sum(hawser_inter_chunk_seconds_bucket))",
      /no label le/,
    ],
    ["whose sides never match", "hawser_worker_active_requests > sum(hawser_bindings)", /other labels/],
    [
      "that matches on what one side does not have",
      "hawser_bindings > on (worker) hawser_worker_eligible",
      /no label worker/,
    ],
  ])("%s", (_, expr, why) => {
    expect(() => examine(expr, page)).toThrow(why);
  });

  it("not where it is right, and its result has the labels that Prometheus leaves it", () => {
    const labels = (expr: string) => [...examine(expr, page).labels].sort().join(" ");
    expect(labels("hawser_worker_eligible")).toBe("instance job worker");
    expect(labels("sum(hawser_worker_eligible)")).toBe("");
    expect(labels("sum without (worker) (hawser_worker_eligible)")).toBe("instance job");
    expect(labels("hawser_worker_eligible * on (instance) group_left () hawser_bindings")).toBe(
      "instance job worker",
    );
    expect(labels("hawser_bindings / on (instance) hawser_bindings")).toBe("instance");
    expect(labels("hawser_worker_eligible and on (job) hawser_bindings")).toBe("instance job worker");
  });
});
