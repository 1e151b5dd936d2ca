// Which Hawser this is.

import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

/** That of the package. */
export const { version: VERSION } = require("hawser/package.json") as { version: string };
