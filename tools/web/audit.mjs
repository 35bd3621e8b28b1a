// Open every page of the built site in a real browser and report what is wrong.
//
//   node audit.mjs SITE NODE_MODULES CHROMIUM OUT [PART OF A PAGE NAME]
//
// Each page, in the light and the dark theme and at four widths: no console error, no
// request that leaves this machine, no sideways scrolling, axe without a violation,
// every image with words, headings in order, figures on an opaque ground. Writes
// screenshots and report.json into OUT; the exit status is 1 when anything was found.

import { createRequire } from "node:module";
import { createServer } from "node:http";
import { readFile, writeFile, mkdir, readdir } from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [site, modules, executablePath, out, only = ""] = process.argv.slice(2);
const require = createRequire(path.join(modules, "index.js"));
const { chromium } = require("playwright-core");
const axeSource = await readFile(path.join(modules, "axe-core/axe.min.js"), "utf8");

const WIDTHS = [360, 768, 1280, 1600];
const THEMES = ["light", "dark"];
const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css",
  ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json",
  ".woff2": "font/woff2", ".ttf": "font/ttf", ".ico": "image/x-icon",
  ".ipynb": "application/json", ".txt": "text/plain; charset=utf-8",
};

async function pages(folder, prefix = "") {
  const found = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (["_static", "_sources", "_downloads", "_images", "_modules"].includes(entry.name)) continue;
    const name = path.posix.join(prefix, entry.name);
    if (entry.isDirectory()) found.push(...(await pages(path.join(folder, entry.name), name)));
    else if (entry.name.endsWith(".html")) found.push(name);
  }
  return found.sort();
}

function serve(folder) {
  const server = createServer(async (request, response) => {
    const wanted = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const file = path.join(folder, path.normalize(wanted === "/" ? "/index.html" : wanted));
    try {
      const body = await readFile(file);
      response.writeHead(200, { "content-type": TYPES[path.extname(file)] ?? "application/octet-stream" });
      response.end(body);
    } catch {
      response.writeHead(404).end("not here");
    }
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

// Runs in the page: faults that need the drawn page rather than its source.
function inspect() {
  const found = [];
  const shown = (element) => element.getClientRects().length > 0;
  for (const image of document.images) {
    if (image.getAttribute("role") === "presentation") continue;
    const alt = (image.getAttribute("alt") ?? "").trim();
    if (!alt || /\.(png|svg|jpe?g|gif|webp)$|^(image|figure|plot)$/i.test(alt))
      found.push(`image without words: ${image.src.slice(-60)}`);
    if (!image.complete || image.naturalWidth === 0)
      found.push(`image did not load: ${image.src.slice(-60)}`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1,h2,h3,h4,h5,h6")) {
    if (!shown(heading)) continue;
    const next = Number(heading.tagName[1]);
    if (next > level + 1) found.push(`h${next} follows h${level}: ${heading.textContent.trim()}`);
    level = next;
  }
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width + 1 || document.body.scrollWidth > width + 1) {
    const kept = (e) => e && (getComputedStyle(e).overflowX !== "visible" || kept(e.parentElement));
    const wide = [...document.querySelectorAll("body *")]
      .filter((e) => shown(e) && e.getBoundingClientRect().right > width + 1 && !kept(e.parentElement))
      .slice(0, 3)
      .map((e) => `${e.tagName.toLowerCase()}.${String(e.className).slice(0, 40)}`);
    found.push(`scrolls sideways (${document.documentElement.scrollWidth} > ${width}): ${wide}`);
  }
  const title = [...document.querySelectorAll("h1")].find(shown);
  if (!title || title.getBoundingClientRect().left < 0) found.push("the title is not in view");
  const main = document.querySelector("main") ?? document.body;
  if (main.textContent.includes("\\(") && !document.querySelector("mjx-container, math"))
    found.push("formulas are not drawn");
  for (const wrong of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
    found.push(`formula error: ${wrong.textContent.slice(0, 60)}`);
  return found;
}

// Runs in the page: a figure's corner must be opaque, or it vanishes on a dark page.
async function figureGround() {
  const found = [];
  for (const image of document.querySelectorAll(".cell_output img, figure img")) {
    if (!/\.(png|webp)(\?|$)|^data:image\/png/.test(image.src)) continue;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, 1, 1, 0, 0, 1, 1);
    if (context.getImageData(0, 0, 1, 1).data[3] < 255)
      found.push(`figure with a transparent ground: ${image.alt.slice(0, 60)}`);
  }
  return found;
}

async function settle(page) {
  await page.evaluate(async () => {
    if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise;
    await document.fonts.ready;
  });
}

const names = (await pages(site)).filter((name) => name.includes(only));
if (names.length === 0) throw new Error(`no page of ${site} has ${only} in its name`);
const server = await serve(site);
const base = `http://127.0.0.1:${server.address().port}`;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const faults = [];
await mkdir(out, { recursive: true });

async function audit(theme) {
  const context = await browser.newContext({ colorScheme: theme, reducedMotion: "reduce" });
  await context.addInitScript((mode) => {
    localStorage.setItem("mode", mode);
    localStorage.setItem("theme", mode);
  }, theme);
  await context.route("**/*", (route) => {
    const url = route.request().url();
    if (url.startsWith(base) || /^(data|blob|about):/.test(url)) return route.continue();
    faults.push({ theme, what: `request leaves the machine: ${url}` });
    return route.abort();
  });
  const page = await context.newPage();
  let where = {};
  page.on("console", (message) => {
    if (message.type() === "error" && !/net::ERR_FAILED/.test(message.text()))
      faults.push({ ...where, what: `console: ${message.text().slice(0, 200)}` });
  });
  page.on("pageerror", (error) => faults.push({ ...where, what: `script error: ${error.message}` }));
  page.on("response", (response) => {
    if (response.status() >= 400)
      faults.push({ ...where, what: `${response.status()} for ${response.url()}` });
  });
  for (const name of names) {
    where = { page: name, theme, width: WIDTHS[2] };
    await page.setViewportSize({ width: WIDTHS[2], height: 900 });
    await page.goto(`${base}/${name}`, { waitUntil: "load" });
    await settle(page);
    // A side bar that is still sliding after a change of width is not what is judged.
    await page.addStyleTag({ content: "* { transition: none !important; animation: none !important; }" });
    for (const what of await page.evaluate(figureGround)) faults.push({ ...where, what });
    for (const width of WIDTHS) {
      where = { page: name, theme, width };
      await page.setViewportSize({ width, height: width < 500 ? 780 : 900 });
      for (const what of await page.evaluate(inspect)) faults.push({ ...where, what });
      // The API pages are many and made alike: for them one width is looked at closely.
      const closely = name.startsWith("api/") ? [WIDTHS[2]] : [WIDTHS[0], WIDTHS[2]];
      if (closely.includes(width)) {
        // The theme gives wide blocks a tab stop a moment after a change of width.
        await page.waitForTimeout(400);
        const file = name.replaceAll("/", "__").replace(/\.html$/, "");
        await page.screenshot({ path: path.join(out, `${file}-${width}-${theme}.png`), fullPage: true });
        await page.evaluate(axeSource);
        const report = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
        for (const rule of report.violations)
          for (const node of rule.nodes.slice(0, 3))
            faults.push({ ...where, what: `axe ${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replaceAll("\n", " ").slice(0, 220)}` });
      }
    }
  }
  await context.close();
}

await Promise.all(THEMES.map(audit));

// Search must find something, and a page opened from disk must read well.
{
  const context = await browser.newContext({ offline: true });
  const page = await context.newPage();
  const where = { page: "index.html", theme: "from disk" };
  page.on("pageerror", (error) => faults.push({ ...where, what: `script error: ${error.message}` }));
  await context.route(/^https?:/, (route) => {
    faults.push({ ...where, what: `request leaves the machine: ${route.request().url()}` });
    return route.abort();
  });
  for (const name of names) {
    where.page = name;
    await page.goto(pathToFileURL(path.join(site, name)).href, { waitUntil: "load" });
    await settle(page);
    for (const what of await page.evaluate(inspect)) faults.push({ ...where, what });
  }
  where.page = "search.html";
  await page.goto(`${pathToFileURL(path.join(site, "search.html")).href}?q=verifier`);
  await page.waitForSelector("#search-results li", { timeout: 20000 }).catch(() =>
    faults.push({ ...where, what: "a search for 'verifier' finds nothing" }));
  await page.screenshot({ path: path.join(out, "search-from-disk.png") });
  await context.close();
}

await browser.close();
server.close();
await writeFile(path.join(out, "report.json"), JSON.stringify({ pages: names, faults }, null, 1));
const lines = new Map();
for (const { page = "", theme = "", width = "", what } of faults) {
  const key = `${page}: ${what}`;
  lines.set(key, [...(lines.get(key) ?? []), `${theme} ${width}`.trim()]);
}
for (const [line, places] of lines) console.log(`${line}  [${places.join(", ")}]`);
console.log(`audited ${names.length} pages in ${THEMES.length} themes at ${WIDTHS.join(", ")} px: ${faults.length} faults`);
process.exit(faults.length ? 1 : 0);
