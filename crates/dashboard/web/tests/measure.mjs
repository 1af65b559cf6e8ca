// What the overview costs with 100 VMs that have requests: CPU time of the page and of the daemon.
//
//   node tests/measure.mjs [SECONDS]
//
// TIDEGATE names the binary (a release build: others are slower by far), CHROMIUM the browser.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { Daemon, until } from "./daemon.mjs";
import { load } from "./nbd.mjs";

const REPOSITORY = join(import.meta.dirname, "../../../..");
const BINARY = process.env.TIDEGATE ?? join(REPOSITORY, "target/release/tidegate");
const SECONDS = Number(process.argv[2] ?? 20);
const VMS = 100;

/** CPU time in seconds of the daemon's main thread, which has the control API. */
function controlTime(pid) {
  const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** CPU time in seconds of all threads. */
function wholeTime(pid) {
  const threads = readdirSync(`/proc/${pid}/task`);
  const times = threads.map((thread) => {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  });
  return times.reduce((sum, time) => sum + time, 0);
}

const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

const daemon = await Daemon.start(BINARY, { vms: VMS });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const names = Array.from({ length: VMS }, (_, i) => `vm${i}`);
  const loads = [];
  for (const name of names) loads.push(await load(daemon.nbd, name, { size: 4096, pauseMs: 200, connections: 1 }));
  const { pid } = daemon.process;
  await wait(3);
  let before = [controlTime(pid), wholeTime(pid)];
  await wait(SECONDS);
  const alone = [controlTime(pid) - before[0], wholeTime(pid) - before[1]];
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(daemon.url);
  await until("100 rows", async () => (await page.locator("tbody tr").count()) === VMS);
  const session = await browser.newBrowserCDPSession();
  const renderer = async () => {
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    return processInfo.filter((it) => it.type === "renderer").reduce((sum, it) => sum + it.cpuTime, 0);
  };
  await wait(3);
  before = [controlTime(pid), wholeTime(pid), await renderer()];
  await wait(SECONDS);
  const percent = (time) => `${((100 * time) / SECONDS).toFixed(2)} %`;
  const control = controlTime(pid) - before[0];
  const whole = wholeTime(pid) - before[1];
  console.log(`renderer: ${percent((await renderer()) - before[2])} of a core`);
  console.log(`control thread: ${percent(control)} with the page, ${percent(alone[0])} without`);
  console.log(`daemon: ${percent(whole)} with the page, ${percent(alone[1])} without`);
  for (const end of loads) await end();
} finally {
  await browser.close();
  await daemon.remove();
}
