// A new policy's folder, from the templates of this package.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { PACKAGE_ROOT } from "../policy/catalog.js";
import { BuildError } from "./build-error.js";
import { CLANG_FLAGS } from "./compile.js";

export const TEMPLATE_LANGUAGES = ["assemblyscript", "c"] as const;
export type TemplateLanguage = (typeof TEMPLATE_LANGUAGES)[number];

const TYPE_NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
const TEMPLATES = join(PACKAGE_ROOT, "templates");

/** A file to be written, and the template it comes from. */
type Files = Readonly<Record<string, string>>;

/**
 * Writes a policy that builds and passes its decision table into the folder `path`, whose last part is its type.
 * Returns the files. Throws a BuildError where the name is not allowed or a file is there already; nothing is written
 * then.
 */
export function scaffold(path: string, language: TemplateLanguage): string[] {
  const directory = resolve(path);
  const name = basename(directory);
  if (!TYPE_NAME.test(name) || name.length > 64 || name === "default") {
    throw new BuildError(
      `a policy's name is lower-case words joined by dashes, at most 64 characters and not "default", found "${name}"`,
    );
  }
  const files = filesOf(name, language);
  const taken = Object.keys(files).find((file) => existsSync(join(directory, file)));
  if (taken !== undefined) throw new BuildError(`${join(path, taken)} is there already, nothing was written`);
  const values = valuesOf(name, language, directory);
  mkdirSync(directory, { recursive: true });
  for (const [file, template] of Object.entries(files)) {
    writeFileSync(join(directory, file), filled(template, values), { flag: "wx" });
  }
  return Object.keys(files).map((file) => join(path, file));
}

function filesOf(name: string, language: TemplateLanguage): Files {
  const shared = { [`${name}.yaml`]: "policy.yaml", "README.md": "README.md" };
  if (language === "c") return { ...shared, [`${name}.c`]: "c/policy.c", "hawser.h": "c/hawser.h" };
  return {
    ...shared,
    [`${name}.ts`]: "assemblyscript/policy.ts",
    "package.json": "assemblyscript/package.json",
    "tsconfig.json": "assemblyscript/tsconfig.json",
  };
}

function filled(template: string, values: Readonly<Record<string, string>>): string {
  const text = readFileSync(join(TEMPLATES, template), "utf8");
  return text.replace(/@([A-Z]+)@/g, (whole, key: string) => values[key] ?? whole);
}

function valuesOf(name: string, language: TemplateLanguage, directory: string): Record<string, string> {
  const compiler = ["clang", ...CLANG_FLAGS, "-o", `${name}.wasm`, `${name}.c`].join(" ");
  const inC = language === "c";
  return {
    NAME: name,
    SOURCE: inC ? `${name}.c` : `${name}.ts`,
    FILES: inC
      ? "- `hawser.h`: the frame\n"
      : "- `package.json`, `tsconfig.json`: for editors, after `npm install`; the build does not need them\n",
    NOTES: inC
      ? `\nThe build needs clang and lld. It runs the line below, then puts the manifest into the module:\n\n\`\`\`console\n$ ${compiler}\n\`\`\``
      : "",
    HAWSER: packageSpec(directory),
    ASSEMBLYSCRIPT: assemblyScriptRange(),
  };
}

function assemblyScriptRange(): string {
  const { dependencies } = JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8"));
  return dependencies.assemblyscript;
}

/** Where npm finds this package: the tarball it was installed from, or its folder. It is on no registry. */
function packageSpec(directory: string): string {
  const home = dirname(PACKAGE_ROOT);
  const lock = join(home, ".package-lock.json");
  const resolved: unknown = existsSync(lock)
    ? JSON.parse(readFileSync(lock, "utf8")).packages?.[`node_modules/${basename(PACKAGE_ROOT)}`]?.resolved
    : undefined;
  const isFile = typeof resolved === "string" && resolved.startsWith("file:");
  const target = isFile ? resolve(dirname(home), resolved.slice("file:".length)) : PACKAGE_ROOT;
  return `file:${relative(directory, target)}`;
}
