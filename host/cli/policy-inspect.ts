// `hawser policy inspect`: what a module is made of, and whether the gateway would take it.
import { Command } from "commander";
import { type DryRun, type Inspection, inspectFile } from "../kit/inspect.js";
import { allowedText } from "../policy/parameters.js";

/** Decisions of pools up to this size are printed one by one. */
const SHOWN_ROWS = 4;

/** The `policy inspect` subcommand. Exit code 1 where the policy is refused. */
export function policyInspectCommand(): Command {
  return new Command("inspect")
    .description("show what a module is made of, and whether the gateway would take it")
    .argument("<file>", "a .wasm file or a manifest")
    .option("--json", "print one JSON object")
    .action((file: string, { json }: { json?: boolean }) => {
      const inspection = inspectFile(file);
      process.stdout.write(json ? `${JSON.stringify(jsonOf(inspection), null, 2)}\n` : textOf(inspection));
      if (inspection.refusals.length > 0) process.exitCode = 1;
    });
}

/** The manifest that counts; reasons as an object. */
function manifestOf({ policy }: Inspection) {
  return policy && { ...policy.manifest, reasons: Object.fromEntries(policy.manifest.reasons) };
}

function jsonOf(inspection: Inspection) {
  const { file, refusals, sha256, report, dryRun } = inspection;
  const verdict = refusals.length === 0 ? "admitted" : "refused";
  const manifest = manifestOf(inspection) ?? null;
  return {
    file,
    verdict,
    refusals,
    sha256: sha256 ?? null,
    module: report ?? null,
    manifest,
    dry_run: dryRun ?? null,
  };
}

function textOf(inspection: Inspection): string {
  const { refusals, report, policy, dryRun } = inspection;
  const lines = [
    ...(report ? moduleLines(report, inspection.sha256!) : []),
    ...(policy ? manifestLines(policy) : []),
    ...(dryRun ? dryLines(dryRun) : []),
    refusals.length === 0 ? "admitted" : `refused: ${refusals.join("; ")}`,
  ];
  return `${lines.join("\n")}\n`;
}

function moduleLines(report: NonNullable<Inspection["report"]>, sha256: string): string[] {
  const { bytes, meteredBytes, exports, memoryPages, functions, loops, instructions, chargePoints } = report;
  return [
    `module      ${bytes} bytes, ${meteredBytes} with the meter in it`,
    `sha256      ${sha256}`,
    `exports     ${exports.join(", ")}`,
    `memory      ${memoryPages} pages of 64 KiB`,
    `code        functions ${functions}, loops ${loops}, instructions ${instructions}, charge points ${chargePoints}`,
  ];
}

function manifestLines({ manifest, file }: NonNullable<Inspection["policy"]>): string[] {
  const { type, version, abi, reads, stateful, parameters, reasons, examples } = manifest;
  const own = [...reasons].map(([number, name]) => `${number} ${name}`);
  return [
    `manifest    ${type} ${version}, ABI ${abi}, from ${file}`,
    `reads       ${["eligible", "active_requests", ...reads].join(", ")}`,
    ...parameters.map((spec) => {
      const fallback = spec.default === undefined ? "required" : `default ${spec.default}`;
      return `parameter   ${spec.name}: ${allowedText(spec)}; ${fallback}`;
    }),
    ...(own.length > 0 ? [`reasons     ${own.join(", ")}`] : []),
    `state       ${stateful ? "stateful: a fresh instance forgets it" : "none"}`,
    `examples    ${examples.length}`,
  ];
}

function dryLines({ decisions, mostFuel, budget, capacity }: DryRun): string[] {
  const shown = decisions.filter(({ rows }) => rows <= SHOWN_ROWS);
  return [
    ...shown.map(({ rows, bound, row, reason, failure, fuel }) => {
      const failed = failure === undefined ? "" : `, ${failure}`;
      return `dry run     rows ${rows}, bound ${bound}: row ${row}, ${reason}${failed}, fuel ${fuel}`;
    }),
    `fuel        ${mostFuel} of ${budget} units at most, with up to ${capacity} rows`,
  ];
}
