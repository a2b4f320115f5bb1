// Drives the live page of a run in a real browser, and prints what it saw as one line of JSON.
//
//   node tests/drive.mjs CHROMIUM URL [DIRECTORY FOR SCREENSHOTS]
//
// The run has an alert already and is at rest. At the line `resume` it is to go on.

import { join } from "node:path";
import puppeteer from "puppeteer-core";

const [executablePath, url, screenshots] = process.argv.slice(2);
const VIEWS = [
  { width: 1280, height: 900, theme: "light" },
  { width: 1280, height: 900, theme: "dark" },
  { width: 2560, height: 1400, theme: "light" },
  { width: 2560, height: 1400, theme: "dark" },
];

const browser = await puppeteer.launch({
  executablePath,
  // Root has no sandbox, and a container's /dev/shm is small.
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

/** A page that keeps what it says and asks for. */
async function open({ width, height, theme }) {
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
  await page.goto(url, { waitUntil: "domcontentloaded" });
  await page.waitForSelector('.state[data-kind="live"]');
  await page.waitForSelector(".alert.critical, .alert.warning");
  await page.waitForFunction(() => document.querySelectorAll(".panel canvas").length >= 4);
  await page.waitForFunction(() => document.querySelector(".legend canvas"));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  return { page, said, asked };
}

/** By panel, how many pixels have the colour of the curve, and of an alert; of the heat map, how many colours it has. */
function measure(page) {
  return page.evaluate(async () => {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const style = getComputedStyle(document.documentElement);
    const color = (name) => {
      const value = Number.parseInt(style.getPropertyValue(`--${name}`).trim().slice(1), 16);
      return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
    };
    const pixels = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const count = (data, [red, green, blue]) => {
      let found = 0;
      for (let at = 0; at < data.length; at += 4) {
        const distance = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue);
        if (data[at + 3] > 200 && distance < 24) found += 1;
      }
      return found;
    };
    const panels = [...document.querySelectorAll(".panel")].map((panel) => {
      const data = pixels(panel.querySelector("canvas"));
      return {
        title: panel.querySelector("h3").textContent,
        curve: count(data, color("accent")),
        marks: count(data, color("critical")) + count(data, color("warning")),
      };
    });
    const heat = new Uint32Array(pixels(document.querySelector(".heat-canvas")).buffer);
    const isOverflowing = document.documentElement.scrollWidth > document.documentElement.clientWidth;
    const background = getComputedStyle(document.body).backgroundColor;
    return { panels, heatColors: new Set(heat).size, isOverflowing, background };
  });
}

const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const rows = (page) => text(page, ".section-head .muted");

/** What the keys do, one after the other. */
async function keys(page) {
  const seen = { before: { rows: await rows(page), ...(await measure(page)) } };
  await page.keyboard.press("/");
  seen.focus = await page.evaluate(() => document.activeElement.className);
  await page.keyboard.type("layers.1 weight");
  await page.waitForFunction(
    (before) => document.querySelector(".section-head .muted").textContent !== before,
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

/** What is said beside the pointer on the mark of the newest alert. */
async function hover(page) {
  await page.waitForSelector(".panel .u-over");
  const box = await (await page.$(".panel .u-over")).boundingBox();
  for (let x = box.x + box.width - 2; x > box.x; x -= 3) {
    await page.mouse.move(x, box.y + box.height / 2);
    const said = await page.evaluate(() => document.querySelector(".tip.shown")?.textContent ?? "");
    if (said) return said;
  }
  return "";
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
      report.hover = await hover(page);
      await page.mouse.move(2, 2);
      report.keys = await keys(page);
    }
    if (isLast) {
      const before = await text(page, ".figures dd");
      console.log("resume");
      await page.waitForFunction((before) => document.querySelector(".figures dd").textContent !== before, {}, before);
      report.steps = [before, await text(page, ".figures dd")];
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
