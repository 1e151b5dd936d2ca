// Compiles every policy in this folder to build/<type>.wasm, and what the host itself runs to build/json/, with the options of
// asconfig.json.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import asc from "assemblyscript/asc";

const folder = dirname(fileURLToPath(import.meta.url));
const root = dirname(folder);

/** Not a policy but the SDK's way out of the package. */
const INDEX = "index.ts";

for (const file of readdirSync(folder).filter((name) => name.endsWith(".ts") && name !== INDEX))
  await compile(file);
await compile("json/strings.ts");

async function compile(file) {
  const module = `build/${file.replace(/\.ts$/, ".wasm")}`;
  const { error, stderr } = await asc.main([
    join("assembly", file),
    ...["--config", "asconfig.json", "--target", "release", "--baseDir", root, "--outFile", module],
  ]);
  if (error) {
    process.stderr.write(`${stderr.toString()}\n${error.message}\n`);
    process.exit(1);
  }
}
