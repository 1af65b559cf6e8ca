// Pictures of the README, made of a run of `tidegate demo`: its dashboard and its report.
//
//   node tests/pictures.mjs DIRECTORY
//
// TIDEGATE names the binary (a release build), CHROMIUM the browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { until } from "./daemon.mjs";

const REPOSITORY = fileURLToPath(new URL("../../../..", import.meta.url));
const BINARY = process.env.TIDEGATE ?? join(REPOSITORY, "target/release/tidegate");
const OUT = process.argv[2] ?? join(REPOSITORY, "docs/pictures");
const VIEWPORT = { width: 1280, height: 780 };
/** Most bytes of a picture: everybody who clones the repository gets it. */
const SIZE_MAX = 150_000;

const dir = mkdtempSync(join(tmpdir(), "tidegate-pictures-"));
const report = join(dir, "report.html");
// Before the demo, which does not wait for it.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const demo = spawn(BINARY, ["demo", "--keep", "--report", report], { stdio: ["ignore", "pipe", "inherit"] });
let output = "";
demo.stdout.on("data", (data) => (output += data));
const ended = new Promise((done) => demo.on("exit", done));
async function take(page, name) {
  const path = join(OUT, name);
  await page.screenshot({ path });
  const { size } = statSync(path);
  console.log(`${path}: ${size} bytes`);
  assert.ok(size <= SIZE_MAX, `at most ${SIZE_MAX} bytes`);
}

try {
  await until("the demo has a dashboard", () => {
    assert.equal(demo.exitCode, null, "the demo has ended");
    return /http:\S+/.test(output);
  });
  const [url] = output.match(/http:\S+/);
  const page = await browser.newPage({ viewport: VIEWPORT });
  await page.goto(`${url}/`);
  // Of the 14 s of the first comparison, in which fifo, mclock and slo follow one another.
  await until("the demo has gone on for 13 s", async () => {
    const answer = await fetch(`${url}/v1/vms/db/history?from=-60s&step=1s`);
    return (await answer.json()).intervals.length >= 13;
  });
  const rate = page.locator("tbody tr", { hasText: "db" }).locator("td").nth(3);
  await until("the page has rates", async () => /^[1-9]/.test((await rate.textContent()) ?? ""));
  await take(page, "dashboard.png");
  await until("there is a report", () => statSync(report, { throwIfNoEntry: false }));
  // From the promises on, with all VMs over time.
  await page.setViewportSize({ width: 900, height: 1000 });
  await page.goto(`file://${report}#promises`);
  await take(page, "report.png");
} finally {
  await browser.close();
  demo.kill("SIGINT");
  await ended;
  rmSync(dir, { recursive: true });
}
