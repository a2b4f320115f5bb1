// Builds dist/run.html, the page in one file, and dist/run.csp, the policy to serve it with. The same sources give the same bytes.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const output = process.argv[2] ?? join(here, "dist");

async function bundle(entry) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    target: ["chrome111", "firefox114", "safari16.4"],
    format: "iife",
    charset: "utf8",
    legalComments: "none",
  });
  return result.outputFiles[0].text.trim();
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const [script, style] = await Promise.all([bundle("src/main.ts"), bundle("src/style.css")]);
if (script.includes("</script") || style.includes("</style")) throw new Error("the bundle would end its own element");
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "img-src data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const uplot = join(here, "node_modules/uplot");
const { version } = JSON.parse(readFileSync(join(uplot, "package.json"), "utf8"));
const notice = `uPlot ${version}:\n${readFileSync(join(uplot, "LICENSE"), "utf8").trim()}`;
const page = readFileSync(join(here, "src/run.html"), "utf8")
  .replace("{{policy}}", () => policy)
  .replace("{{notice}}", () => notice)
  .replace("{{style}}", () => style)
  .replace("{{script}}", () => script);

mkdirSync(output, { recursive: true });
writeFileSync(join(output, "run.html"), page);
// In a header it may also say who frames the page: nobody.
writeFileSync(join(output, "run.csp"), `${policy}; frame-ancestors 'none'`);
console.log(`${join(output, "run.html")}: ${(page.length / 1024).toFixed(0)} KiB`);
