// What the drivers of the page share: a browser, what can be seen of a page, a way to the agent that can be cut.

import { createServer, connect } from "node:net";
import puppeteer from "puppeteer-core";

/** The panels at the top of the page. */
export const TRAINING = "main > .curves .panel";

export function launch(executablePath) {
  return puppeteer.launch({
    executablePath,
    // Root has no sandbox, and a container's /dev/shm is small.
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
  });
}

/** By panel, how many pixels have the colour of the curve, of an alert, of a value that is not finite; the heat map's colours. */
export function measure(page) {
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
        broken: count(data, color("broken")),
      };
    });
    const map = document.querySelector(".heat-canvas");
    const heat = new Uint32Array(map?.width ? pixels(map).buffer : 0);
    const isOverflowing = document.documentElement.scrollWidth > document.documentElement.clientWidth;
    const background = getComputedStyle(document.body).backgroundColor;
    return { panels, heatColors: new Set(heat).size, isOverflowing, background };
  });
}

/** What is said beside the pointer on the mark of the newest alert; the pointer stays there. */
export async function hoverMark(page) {
  await page.waitForSelector(".panel .u-over");
  const box = await (await page.$(".panel .u-over")).boundingBox();
  for (let x = box.x + box.width - 2; x > box.x; x -= 3) {
    await page.mouse.move(x, box.y + box.height / 2);
    const said = await page.evaluate(() => document.querySelector(".tip.shown")?.textContent ?? "");
    if (said) return said;
  }
  return "";
}

/** Which step a panel names under the pointer, at a share of its width. */
export async function readoutAt(page, panel, share) {
  await page.waitForSelector(".panel .u-over");
  const element = (await page.$$(TRAINING))[panel];
  for (let tries = 0; tries < 200; tries += 1) {
    const box = await (await element.$(".u-over")).boundingBox();
    // A pixel up or down: what does not move the pointer is no move.
    await page.mouse.move(box.x + share * box.width, box.y + box.height / 2 + (tries % 2));
    const said = await element.$eval(".readout", (readout) => readout.querySelector(".at")?.textContent);
    if (said) return said;
    // The page was laid out anew since the panel's place was asked, or has not drawn the pointer yet.
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  throw new Error(`panel ${panel} says no step at ${share} of its width`);
}

/** The same address on another port, with `cut` and `mend`: as when an agent goes away and comes back. */
export async function proxy(url) {
  const { hostname, port } = new URL(url);
  const sockets = new Set();
  const server = createServer((client) => {
    const agent = connect(Number(port), hostname);
    for (const [one, other] of [
      [client, agent],
      [agent, client],
    ]) {
      sockets.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => sockets.delete(one));
    }
  });
  const listen = (at) => new Promise((done) => server.listen(at, "127.0.0.1", done));
  await listen(0);
  const own = server.address().port;
  const cut = () =>
    new Promise((done) => {
      server.close(done);
      for (const socket of sockets) socket.destroy();
    });
  return { url: `http://127.0.0.1:${own}/`, cut, mend: () => listen(own) };
}

/** The texts of a page whose contrast against what lies behind them is below 4.5 to 1, with it. */
export function contrasts(page) {
  return page.evaluate(() => {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const bytes = (color) => {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
      return context.getImageData(0, 0, 1, 1).data;
    };
    const luminance = ([red, green, blue]) => {
      const linear = [red, green, blue].map((byte) => {
        const share = byte / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const color = bytes(getComputedStyle(at).backgroundColor);
        if (color[3] > 250) return color;
      }
      return [255, 255, 255];
    };
    const low = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.textContent.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
      const [one, other] = [luminance(bytes(getComputedStyle(element).color)), luminance(behind(element))];
      const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (contrast < 4.5)
        low.set(`${element.className}: ${node.textContent.slice(0, 30)}`, Number(contrast.toFixed(2)));
    }
    return Object.fromEntries(low);
  });
}
