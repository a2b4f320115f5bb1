// The page of a run of 2,002 tensors, and of small ones, in a real browser: what is seen and done, as a line of JSON.
//
//   node tests/large.mjs CHROMIUM PROBE,... [DIST]
//
// A probe that finds no such thing on the page says why, as `failed`.

import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { contrasts, hoverMark, launch } from "./browser.mjs";
import { documents, TENSOR } from "./large_run.mjs";
import { pagesOf } from "./made.mjs";

const [executablePath, wanted, dist = fileURLToPath(new URL("../dist", import.meta.url))] = process.argv.slice(2);
const { folder, urls } = pagesOf(dist, documents);
const browser = await launch(executablePath);
/** Texts that were drawn on a canvas since it was last cleared, by the canvas' class. */
function rememberTexts() {
  const drawn = new WeakMap();
  const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    drawn.set(this.canvas, []);
    return clearRect.apply(this, box);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    if (!drawn.has(this.canvas)) drawn.set(this.canvas, []);
    drawn.get(this.canvas).push(text);
    return fillText.call(this, text, ...rest);
  };
  window.textsOf = (selector) => drawn.get(document.querySelector(selector)) ?? [];
}

async function open(name, { width = 1280, height = 800, theme = "light" } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(5000);
  const said = [];
  page.on("pageerror", (error) => said.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") said.push(message.text());
  });
  await page.evaluateOnNewDocument(rememberTexts);
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  const begin = performance.now();
  await page.goto(urls[name]);
  await page.waitForFunction(() => textsOf(".heat-canvas").length > 2 && document.querySelector(".panel canvas"));
  const openMs = Math.round(performance.now() - begin);
  await settle(page);
  return { page, said, openMs };
}

/** Until what was asked for is drawn. */
const settle = (page) =>
  page.evaluate(async () => {
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  });
const press = async (page, key) => {
  await page.keyboard.press(key);
  await settle(page);
};
const texts = (page) => page.evaluate(() => textsOf(".heat-canvas"));
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const figure = (page, term) =>
  page.evaluate((term) => {
    const of = [...document.querySelectorAll(".figures > div")].find(
      (div) => div.querySelector("dt").textContent === term,
    );
    const value = of?.querySelector("dd");
    return value ? { text: value.textContent, color: getComputedStyle(value).color } : null;
  }, term);
const colorOf = (page, name) =>
  page.evaluate((name) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(--${name})`;
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }, name);

/** What the alert list shows, and the chosen one. */
const alertList = (page) =>
  page.$$eval(".alert", (all) =>
    all.map((one) => ({
      rule: one.querySelector("b").textContent,
      isOver: one.classList.contains("over"),
      isChosen: one.classList.contains("chosen"),
    })),
  );

/** Whether the heat map is on the screen, what is named in it, and which row is selected. */
const seenOfMap = async (page) => ({
  inView: await page.$eval(".heat-scroller", (scroller) => {
    const box = scroller.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= window.innerHeight;
  }),
  texts: await texts(page),
  row: await page.evaluate(() => document.querySelector(".row-panel:not([hidden]) h3")?.textContent ?? null),
  kind: await page.$eval("select[title='kind of measurement']", (select) => select.value),
});

/** From an input to the frame that shows it, in milliseconds: the median and the longest of several. */
function timed(page, act) {
  return page.evaluate(async (source) => {
    const act = new Function("index", source);
    const all = [];
    for (let index = 0; index < 12; index += 1) {
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 5)));
      const begin = performance.now();
      act(index);
      const handled = performance.now() - begin;
      await new Promise(requestAnimationFrame);
      const drawing = performance.now();
      // After the callbacks of this frame have run.
      await new Promise((done) => {
        const channel = new MessageChannel();
        channel.port1.onmessage = done;
        channel.port2.postMessage(0);
      });
      all.push(handled + performance.now() - drawing);
    }
    all.sort((a, b) => a - b);
    return { median: Math.round(all[6]), longest: Math.round(all.at(-1)) };
  }, act);
}

const probes = {
  async defaults() {
    const { page, said, openMs } = await open("large");
    const value = (title) => page.$eval(`select[title='${title}']`, (select) => select.value);
    return { rows: await value("rows"), colours: await value("colours"), said, openMs, texts: await texts(page) };
  },

  /** The first row, then the last, by layer and by tensor. */
  async reach() {
    const { page } = await open("large");
    const seen = {};
    for (const mode of ["layers", "tensors"]) {
      await page.select("select[title='rows']", mode);
      for (const [place, top] of [
        ["first", 0],
        ["last", 1e6],
      ]) {
        await page.$eval(".heat-scroller", (scroller, top) => (scroller.scrollTop = top), top);
        await settle(page);
        seen[`${mode} ${place}`] = await texts(page);
      }
    }
    seen.ruler = await page.evaluate(
      () => (document.querySelector(".ruler")?.getBoundingClientRect().height ?? 0) > 100,
    );
    return seen;
  },

  /** A click on the alert of a tensor, then on that of a layer in another kind. */
  async click() {
    const { page } = await open("large");
    const seen = {};
    for (const rule of ["Spike", "UpdateRatio"]) {
      await page.evaluate((rule) => {
        const found = [...document.querySelectorAll(".alert")].find(
          (one) => one.querySelector("b").textContent === rule,
        );
        (found.querySelector("button") ?? found).click();
      }, rule);
      await settle(page);
      seen[rule] = await seenOfMap(page);
    }
    return seen;
  },

  /** `j` while the filter hides what the alert names. */
  async filtered() {
    const { page } = await open("large");
    await press(page, "/");
    await page.keyboard.type("layers.3.");
    await page.$eval(".filter", (field) => field.blur());
    await settle(page);
    const before = await texts(page);
    for (let times = 0; times < 3; times += 1) await press(page, "j");
    return { before, ...(await seenOfMap(page)), filter: await page.$eval(".filter", (field) => field.value) };
  },

  async alerts() {
    const { page } = await open("large");
    const seen = {
      list: await alertList(page),
      figure: await figure(page, "alerts"),
      critical: await colorOf(page, "critical"),
    };
    seen.walked = [];
    for (let times = 0; times < 8; times += 1) {
      await press(page, "j");
      seen.walked.push((await alertList(page)).find(({ isChosen }) => isChosen)?.rule);
    }
    await page.evaluate(() => document.querySelector(".fold")?.click());
    seen.opened = await alertList(page);
    return seen;
  },

  /** Alerts of one incident: the headline, and the others when they are asked for. */
  async incident() {
    const { page } = await open("incident");
    const seen = { list: await alertList(page), said: await text(page, ".alerts-section"), walked: [] };
    for (let times = 0; times < 3; times += 1) {
      await press(page, "j");
      seen.walked.push((await alertList(page)).find(({ isChosen }) => isChosen)?.rule);
    }
    await page.evaluate(() => document.querySelector(".alerts .fold")?.click());
    seen.opened = (await alertList(page)).length;
    return seen;
  },

  async over() {
    const { page } = await open("over");
    const seen = {
      figure: await figure(page, "alerts"),
      text: await colorOf(page, "text"),
      list: await alertList(page),
    };
    await press(page, "j");
    seen.chosen = (await alertList(page)).findIndex(({ isChosen }) => isChosen);
    seen.words = await text(page, ".alerts-section");
    return seen;
  },

  async calm() {
    const { page } = await open("calm");
    return { figure: await figure(page, "alerts"), text: await colorOf(page, "text") };
  },

  async farthest() {
    const listed = async (name) => {
      const { page } = await open(name);
      const found = await page.evaluate((tensor) => {
        const heading = [...document.querySelectorAll("h2")].find(({ textContent }) =>
          /^Tensors far/.test(textContent),
        );
        const section = heading.closest("section");
        const names = [...section.querySelectorAll(".tensor")].map(({ textContent }) => textContent);
        return { names, text: section.textContent, has: names.includes(tensor) };
      }, TENSOR);
      return { page, found };
    };
    const { found: noise } = await listed("large");
    const { page, found: far } = await listed("far");
    await page.evaluate(() => document.querySelector(".far-item")?.click());
    await settle(page);
    return { noise, far, clicked: await seenOfMap(page) };
  },

  async labels() {
    const { page } = await open("large");
    const panels = await page.$$eval(".panel h3", (titles) => titles.map(({ textContent }) => textContent));
    const row = await page.evaluate(() => {
      const found = [...document.querySelectorAll("td")].find(
        ({ textContent }) => textContent === "straggler_rank/world",
      );
      return found?.closest("tr").textContent ?? null;
    });
    return { panels, row };
  },

  async own() {
    const { page } = await open("large");
    const seen = await page.evaluate(() => {
      const isSeen = (element) => element.checkVisibility() && element.getBoundingClientRect().height > 0;
      const said = [...document.querySelectorAll("h2, h3, dt, summary, .key")].filter(isSeen);
      const last = document.querySelector("main").lastElementChild;
      return {
        said: said.map(({ textContent }) => textContent),
        last: last.textContent.slice(0, 19),
        isOpen: last.open ?? null,
      };
    });
    if (seen.isOpen === null) return seen;
    await page.click(".own-cost summary");
    await settle(page);
    seen.opened = await text(page, ".own-cost");
    seen.curve = await page.$eval(".own-cost .panel canvas", (canvas) => canvas.width > 100 && canvas.height > 50);
    return seen;
  },

  /** What a reader has who does not see canvases, and what the keys do. */
  async access() {
    const { page } = await open("large");
    await press(page, "j");
    await press(page, "j");
    await press(page, "j");
    const canvases = await page.$$eval("canvas", (all) =>
      all.map((canvas) => ({
        hidden: canvas.closest("[aria-hidden='true']") !== null,
        role: canvas.getAttribute("role"),
        label: canvas.getAttribute("aria-label") ?? "",
      })),
    );
    const seen = { canvases };
    const readout = () => page.evaluate(() => document.querySelector(".heat-readout")?.textContent ?? null);
    await page.focus(".heat-scroller");
    await press(page, "ArrowDown");
    seen.read = [await readout()];
    await press(page, "ArrowDown");
    seen.read.push(await readout());
    await press(page, "ArrowLeft");
    seen.read.push(await readout());
    await page.focus(".panel .plot");
    await press(page, "ArrowLeft");
    await press(page, "ArrowLeft");
    seen.curve = await text(page, ".panel .readout");
    // A key on an alert chooses it, and the focus stays there.
    await page.focus(".alert-body, .alert[tabindex]");
    await press(page, "Enter");
    seen.focused = await page.evaluate(
      () => document.activeElement.closest(".alert.chosen")?.querySelector("b").textContent ?? null,
    );
    return seen;
  },

  async contrast() {
    const seen = {};
    for (const theme of ["light", "dark"]) {
      // The newest alert of this run is a warning: its name stands beside the pointer.
      const { page } = await open("over", { theme });
      if (!(await hoverMark(page)).includes("AnomalyTurbulence")) throw new Error("no alert at its mark");
      const beside = await contrasts(page);
      await press(page, "j");
      await page.evaluate(() => document.querySelector(".fold")?.click());
      await page.evaluate(() => document.querySelector(".own-cost")?.setAttribute("open", ""));
      seen[theme] = { ...beside, ...(await contrasts(page)) };
    }
    return seen;
  },

  /** All texts of the pages. */
  async texts() {
    const seen = {};
    for (const name of ["large", "far", "over", "calm"]) {
      const { page } = await open(name);
      await press(page, "j");
      seen[name] = await page.$eval(".page", (element) => element.innerText);
    }
    return seen;
  },

  /** How long a reader waits; nothing is demanded of it here, for it is the machine's too. */
  async times() {
    const { page } = await open("large");
    const key = (name) => `window.dispatchEvent(new KeyboardEvent("keydown", { key: "${name}" }))`;
    const filter = `const field = document.querySelector(".filter");
      field.value = "layers.1".slice(0, 1 + (index % 8)); field.dispatchEvent(new Event("input"));`;
    const hover = `const canvas = document.querySelector(".heat-canvas"); const box = canvas.getBoundingClientRect();
      canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + 300 + 9 * index, clientY: box.top + 40 + 9 * index }));`;
    const scroll = `document.querySelector(".heat-scroller").scrollTop += 333;`;
    return {
      j: await timed(page, `${key("j")}; if (index === 5) ${key("Escape")}`),
      grouping: await timed(page, key("g")),
      colouring: await timed(page, key("c")),
      scroll: await timed(page, scroll),
      hover: await timed(page, hover),
      filter: await timed(page, filter),
    };
  },
};

const report = {};
try {
  for (const [name, probe] of Object.entries(probes).filter(([name]) => wanted.split(",").includes(name))) {
    try {
      report[name] = await probe();
    } catch (error) {
      report[name] = { failed: error instanceof Error ? error.message : String(error) };
    }
    for (const page of await browser.pages()) if (page.url() !== "about:blank") await page.close();
  }
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
console.log(JSON.stringify(report));
