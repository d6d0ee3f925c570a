// The page in headless Chromium: types, drags and reads the result. `cargo test --test page` runs it, or by hand against a
// running server:
//
//     node page.mjs http://127.0.0.1:3000 [PREFIX_OF_SCREENSHOTS]
//
// Needs npm's puppeteer-core (beside this file, or NODE_PATH) and a Chromium (CHROMIUM=/path, or on PATH, or npm's
// @sparticuz/chromium). Without them it says so and ends well.
import assert from "node:assert";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , url, shots] = process.argv;
// Unlike import, this looks in NODE_PATH as well.
const { resolve } = createRequire(import.meta.url);
const load = async (name) => import(pathToFileURL(resolve(name)));
const skip = (why) => { console.log(`skipped: ${why}`); process.exit(0); };

async function chromium() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
  const places = (process.env.PATH ?? "").split(":").flatMap((folder) => names.map((name) => join(folder, name)));
  const executablePath = process.env.CHROMIUM ?? places.find(existsSync);
  if (executablePath) return { executablePath, args: ["--no-sandbox"] };
  const { default: packed } = await load("@sparticuz/chromium");
  return { executablePath: await packed.executablePath(), args: packed.args };
}

const { default: puppeteer } = await load("puppeteer-core").catch(() => skip("npm's puppeteer-core is not there"));
const found = await chromium().catch(() => skip("there is no Chromium; set CHROMIUM"));
const browser = await puppeteer.launch({ ...found, headless: true });
try {
  for (const [width, scheme] of [[1100, "light"], [380, "dark"]]) {
    const page = await browser.newPage(), problems = [];
    page.on("console", (message) => problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("request", (request) => /^(data:|blob:)/.test(request.url()) || request.url().startsWith(url) || problems.push("asked " + request.url()));
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.goto(url + "/");
    const settled = () => page.evaluate(() => Number(document.body.dataset.settled ?? 0));
    const after = async (action) => {
      const before = await settled();
      await action();
      await page.waitForFunction((n) => Number(document.body.dataset.settled ?? 0) > n, { timeout: 30_000 }, before);
      await page.waitForNetworkIdle({ idleTime: 200 });
    };
    const text = (selector) => page.$eval(selector, (element) => element.innerText);
    const shares = () => page.$$eval("#spent td", (cells) => cells.map((cell) => Number(cell.textContent)));
    await page.waitForSelector("#spent td", { timeout: 30_000 });

    // Type.
    await after(async () => {
      await page.$eval("#text", (area) => (area.value = ""));
      await page.type("#text", "an utter waste of time, dull and long");
    });
    assert.match(await text("#answer"), /^negative/);
    assert.match(await text("#figures"), /same answer/);
    assert.ok((await shares()).every((share) => share === 100));
    // The sliders stand where the model is served.
    assert.ok((await text("#model")).includes(`served in ${await text("#precision-value")},`));

    // Nothing is answered to nothing.
    await after(() => page.$eval("#text", (area) => { area.value = ""; area.dispatchEvent(new Event("input")); }));
    assert.equal(await text("#answer"), "Write a text.");
    assert.equal((await shares()).length, 0);
    await after(() => page.type("#text", "an utter waste of time, dull and long"));

    // Drag: tokens leave.
    await after(async () => {
      const slider = await (await page.$("#keep")).boundingBox();
      const y = slider.y + slider.height / 2;
      await page.mouse.move(slider.x + 8, y);
      await page.mouse.down();
      await page.mouse.move(slider.x + slider.width * 0.55, y, { steps: 6 });
      await page.mouse.up();
    });
    assert.match(await text("#keep-value"), /%$/);
    assert.ok((await shares()).includes(0), "nothing was dropped");
    assert.match(await text("#figures"), /\d reach the last layer/);
    if (shots) await page.screenshot({ path: `${shots}-${width}-${scheme}.png`, fullPage: true });

    // Keyboard: back to all, then fewer bits and coarser values.
    await after(async () => {
      await page.focus("#keep");
      await page.keyboard.press("Home");
      await page.focus("#precision");
      await page.keyboard.press("End");
    });
    assert.equal(await text("#precision-value"), "int8");
    await after(async () => {
      await page.focus("#alpha");
      for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
    });
    assert.equal(await text("#alpha-value"), "0.4 (graded)");
    assert.ok((await shares()).some((share) => share < 100));
    assert.ok(await page.$eval("#problem", (element) => element.hidden), await text("#problem"));

    // Nothing sticks out, every control has a name.
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    assert.ok(await page.$$eval("input, textarea", (all) => all.every((control) => control.labels.length > 0)));
    assert.deepEqual(problems, []);
    await page.close();
  }
  console.log("the page does what it should");
} finally {
  await browser.close();
}
