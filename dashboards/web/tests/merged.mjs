// A run of so many steps that each bin of the curves holds several, in a file, in a real browser: what is seen, as a line of JSON.
//
//   node tests/merged.mjs CHROMIUM

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { launch, measure, readoutAt } from "./browser.mjs";

const [executablePath] = process.argv.slice(2);
const BINS = 400;
const WIDTH = 4;
/** A spike of one step within a bin, and a NaN of one step within another. */
const SPIKE = 100;
const BROKEN = 300;

const bins = Array.from({ length: BINS }, (_, bin) => bin);
const level = (bin) => 2 + 0.1 * Math.sin(bin / 9);
const axis = { generation: 1, width: WIDTH, bins: BINS };
const document_ = (high, broken) => ({
  version: Number(
    readFileSync(new URL("../src/data/contract.ts", import.meta.url), "utf8").match(/VERSION = (\d+)/)[1],
  ),
  overview: {
    version: 2,
    cursor: { generation: 1, bins: BINS - 1, alerts: 0 },
    steps: {
      ...axis,
      from: 0,
      first: bins.map((bin) => bin * WIDTH),
      last: bins.map((bin) => bin * WIDTH + WIDTH - 1),
      time: bins,
    },
    curves: [{ name: "loss", last: bins.map(level), low: bins.map((bin) => level(bin) - 0.02), high, broken }],
    curves_left_out: 0,
    tables: {
      kinds: [],
      rows_left_out: 0,
      columns: { generation: 0, width: 1, bins: 0 },
      worst: [],
      update_ratios: [],
      far_deviations: 0,
      labels: [],
    },
    alerts: [],
    alerts_seen: 0,
    alerts_begun: 0,
  },
  status: {
    run: "merged",
    rank: 0,
    world_size: 1,
    host: "",
    version: "",
    step: BINS * WIDTH - 1,
    seconds_since_last_step: null,
    ledger: null,
    collectives: [],
    cost: null,
  },
});

/** Pixels of the upper third of the first panel that lean to the curve's colour, a blue. */
const blueAbove = (page) =>
  page.evaluate(() => {
    const canvas = document.querySelector(".panel canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, Math.floor(canvas.height / 3));
    let found = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 60 && data[at + 2] > data[at] + 40) found += 1;
    return found;
  });

const folder = mkdtempSync(join(tmpdir(), "trainmon-"));
const browser = await launch(executablePath);
try {
  const template = readFileSync(fileURLToPath(new URL("../dist/run.html", import.meta.url)), "utf8");
  const look = async (high, broken) => {
    const file = join(folder, "run.html");
    const data = JSON.stringify(document_(high, broken));
    writeFileSync(
      file,
      template.replace('id="run-data">null<', () => `id="run-data">${data}<`),
    );
    const page = await browser.newPage();
    const said = [];
    page.on("pageerror", (error) => said.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") said.push(message.text());
    });
    await page.setViewport({ width: 1280, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector(".panel canvas");
    const { panels } = await measure(page);
    const seen = { said, ...panels[0], above: await blueAbove(page), readout: await readoutAt(page, 0, 0.5) };
    await page.close();
    return seen;
  };
  const calm = bins.map((bin) => level(bin) + 0.02);
  const spiked = calm.map((value, bin) => (bin === SPIKE ? 20 : value));
  console.log(JSON.stringify({ calm: await look(calm, []), spiked: await look(spiked, [BROKEN]) }));
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
