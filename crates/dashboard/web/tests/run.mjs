// Tests of the dashboard in headless Chromium, against a daemon that serves it.
//
//   node tests/run.mjs [PART OF A NAME]...
//
// TIDEGATE names the binary, CHROMIUM the browser; SCREENSHOTS is the directory of the pictures. ASSETS is a directory
// of built files that the browser gets instead of those in the binary, to try a change without building the daemon.
// What is missing is said and passed over, but is an error with CI=true.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const WEB = fileURLToPath(new URL("..", import.meta.url));
const REPOSITORY = join(WEB, "../../..");
// Relative to the repository, as cargo and make have it: the daemon is started in another directory.
const TARGET = resolve(REPOSITORY, process.env.CARGO_TARGET_DIR ?? "target");
const BINARY = resolve(process.env.TIDEGATE ?? join(TARGET, "debug/tidegate"));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const SCREENSHOTS = process.env.SCREENSHOTS ?? join(TARGET, "dashboard");
const ASSETS = process.env.ASSETS;

for (const [what, path, how] of [
  ["node_modules", join(WEB, "node_modules/playwright-core"), "npm ci"],
  ["Chromium", CHROMIUM, "apt-get install chromium, or CHROMIUM=PATH"],
  ["tidegate", BINARY, "cargo build --package tidegate, or TIDEGATE=PATH"],
]) {
  if (existsSync(path)) continue;
  console.log(`NOT CHECKED: there is no ${what} at ${path}; ${how}`);
  process.exit(process.env.CI === "true" ? 1 : 0);
}

const { chromium } = await import("playwright-core");
const axe = readFileSync(join(WEB, "node_modules/axe-core/axe.min.js"), "utf8");
const { Daemon, until } = await import("./daemon.mjs");
const { load } = await import("./nbd.mjs");
const hostile = await import("./hostile.mjs");
const { trouble } = await import("./trouble.mjs");
const { windows } = await import("./windows.mjs");

const ROUTES = ["", "vm/db", "device/nvme0", "transfers", "recordings", "whatif", "reports"];
const SIZES = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 900 } },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  { name: "phone", colorScheme: "light", viewport: { width: 390, height: 844 } },
  { name: "phone-dark", colorScheme: "dark", viewport: { width: 390, height: 844 } },
];

let daemon;
let browser;
let hasRun = false;
let hasTransfer = false;

/** Answers requests for the page and its files from `ASSETS`, with the daemon's headers of the page. */
async function serveAssets(page) {
  const headers = (await page.request.get(daemon.url)).headers();
  const types = { html: headers["content-type"], js: "text/javascript", css: "text/css" };
  await page.route(
    (url) => url.pathname === "/" || url.pathname.startsWith("/assets/"),
    (route) => {
      const file = basename(new URL(route.request().url()).pathname) || "index.html";
      const contentType = types[file.split(".").pop()];
      const body = readFileSync(join(ASSETS, file));
      return route.fulfill({ headers: { ...headers, "content-length": String(body.length) }, contentType, body });
    },
  );
}

/**
 * Opens a page, at `base` instead of the daemon's address, in a browser of its own or in `browserOf` that of another
 * page; `errors` collects what the browser complains about.
 */
async function open(route = "", { base = daemon.url, browserOf, ...options } = {}) {
  const context = browserOf?.context() ?? (await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options }));
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    if (!/^(data:|blob:)/.test(request.url()) && !request.url().startsWith(base)) errors.push(request.url());
  });
  if (ASSETS) await serveAssets(page);
  await options.prepare?.(page);
  await page.goto(`${base}#/${route}`);
  return { page, errors, close: () => context.close() };
}

/** Waits until a page has figures and charts of its own. */
async function ready(page, route) {
  await page.locator("header .mark.good", { hasText: "live" }).waitFor();
  if (route === "") {
    const rate = page.locator("tbody tr", { hasText: "db" }).locator("td").nth(3);
    await until("the overview has rates", async () => /^[1-9]/.test((await rate.textContent()) ?? ""));
  }
  if (/^(vm|device)/.test(route)) await page.locator("figure canvas").nth(3).waitFor();
  else await page.locator("h1").waitFor({ state: "attached" });
  if (route === "transfers" && hasTransfer) await page.locator("tbody progress").waitFor();
  if (route === "recordings") await page.locator("tbody tr").first().waitFor();
  // Its results are there once a test has started a run.
  if (route === "whatif" && hasRun) await page.getByRole("region", { name: "Policies side by side" }).waitFor();
}

async function enterToken(page, secret) {
  await page.getByRole("button", { name: /^Token/ }).click();
  await page.getByLabel("Secret").fill(secret);
  await page.getByRole("button", { name: "Use", exact: true }).click();
}

/** Waits for a form that shows the request which it will send. */
const asks = (page, request) => page.getByRole("dialog").getByText(request, { exact: true }).waitFor();

/** Errors of a page without those of requests that were refused on purpose. */
const unexpected = (errors) => errors.filter((text) => !/status of 4(01|03|22)/.test(text));

const tests = {
  async "the committed files are those of a build"() {
    const out = mkdtempSync(join(tmpdir(), "tidegate-dashboard-build-"));
    const env = { ...process.env, DASHBOARD_OUT: out };
    execFileSync("npx", ["--no-install", "tsc", "--noEmit"], { cwd: WEB, stdio: "inherit" });
    execFileSync("npx", ["--no-install", "vite", "build", "--logLevel", "warn"], { cwd: WEB, env, stdio: "inherit" });
    const committed = join(WEB, "../assets");
    const files = readdirSync(join(out, "assets")).sort();
    assert.deepEqual(readdirSync(committed).sort(), files, "npm run build, and commit its files");
    for (const file of files) {
      assert.ok(readFileSync(join(out, "assets", file)).equals(readFileSync(join(committed, file))), file);
    }
    const list = readFileSync(join(out, "built.rs"), "utf8");
    assert.equal(readFileSync(join(WEB, "../src/built.rs"), "utf8"), list, "npm run build");
    rmSync(out, { recursive: true });
  },

  async "a what-if run is started, shows policies side by side, and opens as a report"() {
    const { page, errors, close } = await open("whatif");
    const operator = await daemon.token("asks", "operate");
    await page.getByText("No device is recorded yet").waitFor();
    await daemon.ask("PUT", "/v1/devices/nvme0/recording", { on: true });
    await until("requests are recorded", async () => {
      const { body } = await daemon.ask("GET", "/v1/recordings");
      return body.devices.find((it) => it.device === "nvme0").requests > 1500;
    });
    const replay = page.getByRole("button", { name: "Replay" });
    await replay.click({ timeout: 60_000 });
    await page.getByRole("alert").filter({ hasText: "needs a token" }).waitFor();
    await enterToken(page, operator);
    await page.getByRole("button", { name: "Token ✓" }).waitFor();
    await page.getByRole("combobox", { name: "VM" }).selectOption("web");
    await page.getByRole("combobox", { name: "Part" }).selectOption("limit.total");
    await page.getByLabel("Value, or none").fill("20 apples");
    await replay.click();
    await page.getByRole("alert").filter({ hasText: "apples" }).waitFor();
    await page.getByLabel("Value, or none").fill("50 IOPS");
    await replay.click();
    const table = page.getByRole("region", { name: "Policies side by side" });
    await table.waitFor({ timeout: 120_000 });
    hasRun = true;
    const heads = (await table.locator("thead th").allTextContents()).map((text) => text.trim());
    assert.deepEqual(heads, ["VM", "Figure", "recorded", "slo as recorded", "fifo", "mclock", "slo"]);
    await page.getByText("Check: replayed under its own policy (slo)").waitFor();
    // Of the row of requests a second: what each column says.
    const web = table.locator("tbody", { hasText: "web" }).locator("tr").first();
    const rates = (await web.locator("td").allTextContents()).map((text) => Number(text.replaceAll("\u202f", "")));
    assert.ok(rates[3] <= 55 && rates[4] <= 55, `limits are kept: ${rates}`);
    assert.ok(rates[1] > 55 && rates[2] <= 2 * rates[1], `others have none: ${rates}`);
    const [report] = await Promise.all([
      page.context().waitForEvent("page"),
      page.getByRole("link", { name: "Each VM over time, as a report" }).click(),
    ]);
    await report.getByRole("heading", { name: "What if: nvme0, -10m to now" }).waitFor();
    await report.close();
    assert.deepEqual(unexpected(errors), []);
    await close();
  },

  async "every page has live data, no errors, and is clean by axe in both themes and on a phone"() {
    mkdirSync(SCREENSHOTS, { recursive: true });
    // A transfer that runs, and one that has ended.
    const transfer = { size: "10 GiB", deadline: "2 h" };
    await daemon.ask("PUT", "/v1/vms/db/job?force=true", transfer);
    await daemon.ask("DELETE", "/v1/vms/db/job");
    const { status } = await daemon.ask("PUT", "/v1/vms/backup/job?force=true", transfer);
    assert.equal(status, 201);
    hasTransfer = true;
    const look = async ({ name, ...options }) => {
      for (const route of ROUTES) {
        const { page, errors, close } = await open(route, options);
        await ready(page, route);
        await page.screenshot({ path: join(SCREENSHOTS, `${name}-${route.replace("/", "-") || "overview"}.png`), fullPage: true });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${name} ${route}: ${over} px too wide`);
        await page.evaluate(axe);
        const { violations, passes } = await page.evaluate(() => axe.run());
        const found = violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" ")}`);
        assert.deepEqual(found, [], `${name} ${route}`);
        assert.ok(passes.length > 10, "axe has looked at something");
        assert.deepEqual(errors, [], `${name} ${route}`);
        await close();
      }
    };
    await Promise.all(SIZES.map(look));
    await daemon.ask("DELETE", "/v1/vms/backup/job");
    hasTransfer = false;
  },

  async "the overview follows the VMs, sorts and filters them"() {
    const { page, errors, close } = await open();
    const cell = (vm, column) => page.locator("tbody tr", { hasText: vm }).locator("td").nth(column - 1);
    for (const vm of ["db", "web", "backup"]) {
      await until(`${vm} has requests`, async () => Number(await cell(vm, 4).textContent()) > 0);
      assert.match(await cell(vm, 7).textContent(), /[0-9.]+ (µs|ms|s)/);
    }
    assert.match(await cell("db", 2).textContent(), /at least 50 IOPS @ 16 KiB; within 200 ms/);
    const names = () => page.locator("tbody th").allTextContents();
    assert.deepEqual(await names(), ["backup", "db", "web"]);
    await page.getByRole("button", { name: "VM" }).click();
    assert.deepEqual(await names(), ["web", "db", "backup"]);
    await page.keyboard.press("/");
    await page.keyboard.type("nvme");
    await until("filtered", async () => (await names()).length === 2);
    await page.keyboard.press("Escape");
    assert.deepEqual(errors, []);
    await close();
  },

  async "keys lead through the pages and dialogues"() {
    const { page, errors, close } = await open();
    await ready(page, "");
    await page.keyboard.press("2");
    await page.getByRole("heading", { name: "Deadline transfers" }).waitFor();
    await page.keyboard.press("3");
    await page.getByRole("heading", { name: "Recordings" }).waitFor();
    await page.keyboard.press("4");
    await page.getByRole("heading", { name: "What if" }).waitFor();
    await page.keyboard.press("5");
    await page.getByRole("heading", { name: "Reports" }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("1");
    assert.equal(await page.getByRole("heading", { name: "Reports" }).count(), 1, "a dialogue is open");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("1");
    await page.getByRole("heading", { name: "Devices" }).waitFor();
    await page.keyboard.press("p");
    await page.locator("header .mark", { hasText: "paused" }).waitFor();
    await page.keyboard.press("p");
    await page.locator("header .mark", { hasText: "live" }).waitFor();
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme ?? "auto");
    const seen = [];
    for (let i = 0; i < 3; i++) {
      await page.keyboard.press("t");
      seen.push(await theme());
    }
    assert.deepEqual(seen, ["light", "dark", "auto"]);
    assert.deepEqual(errors, []);
    await close();
  },

  async "an objective is changed with a token, and shown as it is in force"() {
    const { page, errors, close } = await open("vm/db");
    await ready(page, "vm/db");
    const change = async (value) => {
      await page.getByRole("button", { name: "Change …" }).click();
      await page.getByLabel("Reservation").fill(value);
      await asks(page, `PATCH /v1/vms/db/objective {"reservation":"${value}"}`);
      await page.getByRole("button", { name: "Put in force" }).click();
    };
    await change("60 IOPS @ 16 KiB");
    await page.getByRole("alert").filter({ hasText: "needs a token" }).waitFor();
    await page.getByRole("button", { name: "Back", exact: true }).click();
    const inForce = async () => (await daemon.ask("GET", "/v1/vms/db")).body.objective.reservation;
    assert.equal(await inForce(), "50 IOPS @ 16 KiB");
    await enterToken(page, "tidegate_wrong");
    await page.getByRole("alert").filter({ hasText: "not valid" }).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await enterToken(page, await daemon.token("operator", "operate"));
    await page.getByRole("button", { name: "Token ✓" }).waitFor();
    await change("60 apples");
    await page.getByRole("alert").filter({ hasText: "apples" }).waitFor();
    await page.getByLabel("Reservation").fill("60 IOPS @ 16 KiB");
    await page.getByRole("button", { name: "Put in force" }).click();
    await page.getByRole("status").filter({ hasText: "In force now: at least 60 IOPS @ 16 KiB; within 200 ms" }).waitFor();
    assert.equal(await inForce(), "60 IOPS @ 16 KiB");
    // The page itself follows, too.
    await page.locator(".promise", { hasText: "60 IOPS" }).waitFor();
    assert.deepEqual(unexpected(errors), []);
    await close();
  },

  async "a policy needs an administrator"() {
    const { page, errors, close } = await open("device/nvme0");
    await ready(page, "device/nvme0");
    const change = async (name) => {
      await page.getByRole("button", { name: "Change …" }).click();
      await page.getByRole("combobox", { name: "Policy" }).selectOption(name);
      await asks(page, `PUT /v1/devices/nvme0/policy {"name":"${name}"}`);
      await page.getByRole("button", { name: "Put in force" }).click();
    };
    await enterToken(page, await daemon.token("too-low", "operate"));
    await change("mclock");
    await page.getByRole("alert").filter({ hasText: "needs admin" }).waitFor();
    await page.getByRole("button", { name: "Back", exact: true }).click();
    await enterToken(page, await daemon.token("administrator", "admin"));
    await change("mclock");
    await page.getByRole("status").filter({ hasText: "In force now: mclock" }).waitFor();
    const { body } = await daemon.ask("GET", "/v1/devices/nvme0");
    assert.equal(body.policy.name, "mclock");
    await daemon.ask("PUT", "/v1/devices/nvme0/policy", "slo");
    assert.deepEqual(unexpected(errors), []);
    await close();
  },

  async "transfers are started and cancelled, and recordings switched"() {
    const { page, errors, close } = await open("transfers");
    await ready(page, "transfers");
    await enterToken(page, await daemon.token("switches", "operate"));
    await page.getByRole("button", { name: "Start …" }).click();
    await page.getByRole("combobox", { name: "VM" }).selectOption("backup");
    await page.getByLabel("Size").fill("10 GiB");
    await page.getByLabel("Deadline from now").fill("2 h");
    await page.getByLabel("even if it does not fit").check();
    await asks(page, 'PUT /v1/vms/backup/job?force=true {"size":"10 GiB","deadline":"2 h"}');
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.getByRole("status").filter({ hasText: "In force now: backup" }).waitFor();
    const row = page.locator("tbody tr", { hasText: "backup" });
    await row.filter({ hasText: "% of 10.0 GiB" }).waitFor();
    await page.getByRole("button", { name: "Cancel the transfer of backup" }).click();
    await asks(page, "DELETE /v1/vms/backup/job");
    // One click changes nothing, and the form may be left.
    await page.getByRole("button", { name: "Back", exact: true }).click();
    const { body: kept } = await daemon.ask("GET", "/v1/vms/backup/job");
    assert.ok(kept.job, "it goes on");
    await page.getByRole("button", { name: "Cancel the transfer of backup" }).click();
    await page.getByRole("button", { name: "Cancel the transfer", exact: true }).click();
    await row.filter({ hasText: "none runs" }).waitFor();
    await page.keyboard.press("3");
    for (const [button, said, is] of [
      ["Switch on", "recording of hdd0 is on", true],
      ["Switch off", "recording of hdd0 is off", false],
    ]) {
      await page.getByRole("button", { name: `${button} the recording of hdd0` }).click();
      await asks(page, `PUT /v1/devices/hdd0/recording {"on":${is}}`);
      await page.getByRole("button", { name: button, exact: true }).click();
      await page.getByRole("status").filter({ hasText: said }).waitFor();
      const { body } = await daemon.ask("GET", "/v1/recordings");
      assert.equal(body.devices.find((it) => it.device === "hdd0").on, is);
    }
    assert.deepEqual(unexpected(errors), []);
    await close();
  },

  async "a what-if run shows its progress and is cancelled"() {
    let state = "running";
    const prepare = async (page) => {
      // A run of the daemon itself would be over at any time.
      await page.route(/\/v1\/whatif$/, (route) => {
        if (route.request().method() === "DELETE") state = "cancelled";
        const run = { number: 7, state, request: { device: "nvme0" }, progress: 0.25, step: "mclock" };
        const bounds = { cpu_s: 1, time_s: 1, memory_bytes: 1, recording_bytes: 1 };
        return route.fulfill({ json: { bounds, models: [], run } });
      });
    };
    const { page, errors, close } = await open("whatif", { prepare });
    await page.getByRole("status").filter({ hasText: "25.0 % mclock" }).waitFor();
    await page.getByRole("button", { name: "Cancel the run" }).click();
    await asks(page, "DELETE /v1/whatif");
    assert.equal(state, "running");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the run" }).click();
    await page.getByRole("status").filter({ hasText: "Cancelled." }).waitFor();
    assert.equal(state, "cancelled");
    assert.deepEqual(errors, []);
    await close();
  },

  async "a report opens with a style of its own, without scripts"() {
    for (const { name, ...options } of SIZES) {
      const { page, close } = await open("reports", options);
      const link = page.getByRole("link", { name: "5 minutes", exact: true });
      const [report] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
      const errors = [];
      report.on("console", (message) => errors.push(message.text()));
      await report.getByRole("heading", { name: /^Tidegate from / }).waitFor();
      const looks = await report.evaluate(() => ({
        scripts: document.scripts.length,
        // The style sheet was applied: a browser's own has another width.
        width: getComputedStyle(document.querySelector("main")).maxWidth,
        over: document.documentElement.scrollWidth - innerWidth,
      }));
      assert.equal(looks.scripts, 0);
      assert.notEqual(looks.width, "none", "the content policy allows the style");
      assert.ok(looks.over <= 0, `${name}: ${looks.over} px too wide`);
      await report.screenshot({ path: join(SCREENSHOTS, `${name}-report.png`), fullPage: true });
      assert.deepEqual(errors, []);
      await close();
    }
  },

  async "hostile names are text on every page"() {
    const prepare = async (page) => {
      await page.route(/\/v1\/|\/healthz/, (route) => {
        const url = route.request().url();
        if (url.endsWith("/v1/events")) {
          return route.fulfill({ contentType: "text/event-stream", body: hostile.sample() });
        }
        const json = hostile.answer(url);
        if (json) return route.fulfill({ json });
        return route.fulfill({ status: 409, json: { error: { what: hostile.NAME, where: hostile.NAME, allowed: hostile.LINK } } });
      });
    };
    for (const route of ["", `vm/${encodeURIComponent(hostile.NAME)}`, `device/${encodeURIComponent(hostile.LINK)}`, "transfers", "recordings", "whatif", "reports", encodeURIComponent(hostile.NAME)]) {
      const { page, errors, close } = await open(route, { prepare });
      await page.getByText(hostile.NAME, { exact: false }).first().waitFor();
      await page.locator("main h1").first().waitFor({ state: "attached" });
      const found = await page.evaluate(() => ({
        taken: window.taken,
        elements: document.querySelectorAll("#app img, #app script, #app iframe").length,
        handlers: [...document.querySelectorAll("#app *")].flatMap((it) => it.getAttributeNames()).filter((it) => it.startsWith("on")),
        links: [...document.querySelectorAll("a")].map((it) => it.getAttribute("href")).filter((it) => !it.startsWith("#") && !it.startsWith("/v1/")),
      }));
      assert.deepEqual(found, { taken: undefined, elements: 0, handlers: [], links: [] }, route);
      assert.deepEqual(errors.filter((text) => !/status of 409/.test(text)), [], route);
      await close();
    }
  },

  ...trouble({ open, ready, enterToken, unexpected: (errors) => unexpected(errors), get daemon() { return daemon; } }),
  ...windows({ open, ready }),

  async "a page goes on after the daemon was restarted"() {
    const { page, close } = await open();
    await ready(page, "");
    await daemon.stop();
    await page.locator("header .mark", { hasText: "no connection" }).waitFor();
    await daemon.run();
    await page.locator("header .mark", { hasText: "live" }).waitFor({ timeout: 60_000 });
    await close();
  },
};

const wanted = process.argv.slice(2);
const picked = Object.entries(tests).filter(([name]) => !wanted.length || wanted.some((part) => name.includes(part)));
assert.ok(picked.length > 0, "no test has such a name");
let failed = 0;
try {
  daemon = await Daemon.start(BINARY);
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const loads = [
    await load(daemon.nbd, "db", { size: 16384, pauseMs: 10, connections: 3 }),
    await load(daemon.nbd, "web", { size: 4096, pauseMs: 10, connections: 4 }),
    await load(daemon.nbd, "backup", { size: 262144, pauseMs: 50, isWrite: true }),
  ];
  await until("the history has points", async () => {
    const { body } = await daemon.ask("GET", "/v1/vms/db/history?from=-5m&step=1s");
    return body.intervals.length >= 3;
  });
  for (const [name, test] of picked) {
    const start = Date.now();
    try {
      await test();
      console.log(`ok      ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack ?? error}`);
    }
  }
  for (const end of loads) await end();
} finally {
  await browser?.close();
  if (failed && daemon) console.log(daemon.log());
  await daemon?.remove();
}
console.log(failed ? `${failed} of ${picked.length} tests failed` : `${picked.length} tests passed`);
process.exit(failed ? 1 : 0);
