// Builds what the crate trainmon-web holds: dist/run.html, the page of a run in one file, with run.csp, the policy to serve it with;
// style, scripts and policies of the reports that Rust writes. The same sources give the same bytes.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const output = process.argv[2] ?? join(here, "dist");
/** Reports with a script; `compare-runs` does without. */
const REPORTS = ["compare", "checkpoint"];

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
  const text = result.outputFiles[0].text.trim();
  if (text.includes("</script") || text.includes("</style")) throw new Error(`${entry} would end its own element`);
  return text;
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const write = (name, text) => writeFileSync(join(output, name), text);
mkdirSync(output, { recursive: true });

const [script, style] = await Promise.all([bundle("src/main.ts"), bundle("src/style.css")]);
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
write("run.html", page);
// In a header it may also say who frames the page: nobody.
write("run.csp", `${policy}; frame-ancestors 'none'`);

write("report.css", await bundle("src/report/report.css"));
for (const name of REPORTS) {
  const script = await bundle(`src/report/${name}.ts`);
  write(`${name}.js`, script);
  // A bar's width is an attribute of its element, so styles may stand anywhere; scripts may not.
  write(
    `${name}.csp`,
    `default-src 'none'; script-src ${hash(script)}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'`,
  );
}
console.log(`${join(output, "run.html")}: ${(page.length / 1024).toFixed(0)} KiB`);
