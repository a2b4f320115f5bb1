// Drives the live page of a run in a real browser, and prints what it saw as one line of JSON.
//
//   node tests/drive.mjs CHROMIUM URL [DIRECTORY FOR SCREENSHOTS]
//
// The run has an alert already and is at rest. At the line `resume` it is to go on.

import { join } from "node:path";
import { hoverMark, launch, measure, proxy, readoutAt, TRAINING } from "./browser.mjs";

const [executablePath, url, screenshots] = process.argv.slice(2);
const VIEWS = [
  { width: 1280, height: 900, theme: "light" },
  { width: 1280, height: 900, theme: "dark" },
  { width: 2560, height: 1400, theme: "light" },
  { width: 2560, height: 1400, theme: "dark" },
];

const browser = await launch(executablePath);
/** A page that keeps what it says and asks for. */
async function open({ width, height, theme }, at = url) {
  const page = await browser.newPage();
  const said = [];
  const asked = [];
  page.on("console", (message) => {
    // That pixels are read is this program's doing.
    if (!message.text().startsWith("Canvas2D: Multiple readback")) said.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => said.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => {
    // Its own stream of events ends with the page.
    if (!request.url().includes("/api/events")) said.push(`failed: ${request.url()}`);
  });
  page.on("request", (request) => asked.push(request.url()));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await page.goto(at, { waitUntil: "domcontentloaded" });
  await page.waitForSelector('.state[data-kind="live"]');
  await page.waitForSelector(".alert.critical, .alert.warning");
  await page.waitForFunction(() => document.querySelectorAll(".panel canvas").length >= 4);
  await page.waitForFunction(() => document.querySelector(".legend canvas"));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  return { page, said, asked };
}

const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const rows = (page) => text(page, ".heat-section .section-head .muted");

/** What the keys do, one after the other. */
async function keys(page) {
  const seen = { before: { rows: await rows(page), ...(await measure(page)) } };
  await page.keyboard.press("/");
  seen.focus = await page.evaluate(() => document.activeElement.className);
  await page.keyboard.type("layers.1 weight");
  await page.waitForFunction(
    (before) => document.querySelector(".heat-section .section-head .muted").textContent !== before,
    {},
    seen.before.rows,
  );
  seen.filtered = await rows(page);
  await page.keyboard.press("Escape");
  seen.cleared = await rows(page);
  await page.keyboard.press("j");
  await page.waitForSelector(".alert.chosen");
  seen.chosen = await measure(page);
  await page.keyboard.press("g");
  seen.grouped = await rows(page);
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  seen.legend = await text(page, ".legend");
  await page.keyboard.press("c");
  await page.keyboard.press("t");
  seen.toggled = (await measure(page)).background;
  await page.keyboard.press("t");
  await page.keyboard.press("?");
  seen.help = await page.$eval("dialog", (dialog) => dialog.open);
  await page.keyboard.press("?");
  seen.helpClosed = await page.$eval("dialog", (dialog) => !dialog.open);
  await page.keyboard.press("Escape");
  return seen;
}

const stepIn = (readout) => Number(readout.match(/step ([\d,]+)/)?.[1].replaceAll(",", "") ?? -1);

/** Drags over the middle of the first panel: the steps that it and the last panel begin with, before and after. */
async function zoom(page) {
  const last = (await page.$$(TRAINING)).length - 1;
  const begins = async () => [stepIn(await readoutAt(page, 0, 0)), stepIn(await readoutAt(page, last, 0))];
  const before = await begins();
  const box = await (await page.$(".panel .u-over")).boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + 0.4 * box.width, y);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.7 * box.width, y, { steps: 8 });
  await page.mouse.up();
  return { before, after: await begins(), begins, reset: () => page.mouse.click(box.x + 9, y, { clickCount: 2 }) };
}

/** The agent goes away and comes back: what the page says, and whether its curves are there all along. */
async function reconnect() {
  const way = await proxy(url);
  const { page } = await open(VIEWS[0], way.url);
  await way.cut();
  await page.waitForSelector('.state[data-kind="lost"]');
  const lost = { state: await text(page, ".state"), curve: (await measure(page)).panels[0].curve };
  await way.mend();
  await page.waitForSelector('.state[data-kind="live"]');
  const back = { state: await text(page, ".state"), curve: (await measure(page)).panels[0].curve };
  await page.close();
  await way.cut();
  return { lost, back };
}

const report = { views: [] };
try {
  for (const view of VIEWS) {
    const { page, said, asked } = await open(view);
    const seen = await measure(page);
    if (screenshots)
      await page.screenshot({ path: join(screenshots, `${view.width}-${view.theme}.png`), fullPage: true });
    const isLast = view === VIEWS.at(-1);
    if (view === VIEWS[0]) {
      report.hover = await hoverMark(page);
      await page.mouse.move(2, 2);
      report.keys = await keys(page);
      report.reconnect = await reconnect();
    }
    if (isLast) {
      const { before: whole, after: zoomed, begins, reset } = await zoom(page);
      const before = await text(page, ".figures dd");
      const hovered = await text(page, ".readout");
      console.log("resume");
      await page.waitForFunction((before) => document.querySelector(".figures dd").textContent !== before, {}, before);
      report.steps = [before, await text(page, ".figures dd")];
      report.hovered = [hovered, await text(page, ".readout")];
      const later = await begins();
      await reset();
      report.zoom = { whole, zoomed, later, reset: await begins() };
    }
    const foreign = asked.filter((address) => !address.startsWith(url) && !address.startsWith("data:"));
    report.views.push({ ...view, ...seen, said, foreign });
    await page.close();
  }
} finally {
  await browser.close();
}
// Last of all: who reads it may end this process.
console.log(JSON.stringify(report));
