// Tests of what the page says in trouble: refused tokens, answers that are none, figures that stand still.

import assert from "node:assert/strict";
import http from "node:http";
import { until } from "./daemon.mjs";
import { startProxy } from "./proxy.mjs";

/** Has the page be without locks, as one by http from another host. */
export const withoutLocks = (page) => page.addInitScript(() => delete Navigator.prototype.locks);

/** Replaces the events of the daemon by those of `emit`. */
export function fakeEvents(page) {
  return page.addInitScript(() => {
    window.sources = [];
    window.EventSource = class extends EventTarget {
      static CLOSED = 2;
      readyState = 1;
      constructor() {
        super();
        window.sources.push(this);
      }
      close() {
        this.readyState = 2;
      }
    };
  });
}

/** Sends an event to the page's present source, once it has one. */
export async function emit(page, name, data) {
  await page.waitForFunction(() => window.sources.length > 0);
  const send = ([name, data]) => window.sources.at(-1).dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  await page.evaluate(send, [name, data]);
}

const objective = { reservation: null, limit: null, target: null, weight: 100, group: null, latency: "5 ms", priority: "best-effort 4" };

/** VM of an event without requests. */
export const liveVm = (vm) => ({
  ...{ vm, device: "nvme0", background: false, objective, unenforced: false, failed_disks: 0, clients: 1 },
  ...{ pending: 0, in_flight: 0, errors: 0 },
});

/** Tests by name; `it` has the helpers of `run.mjs`, and the daemon once it runs. */
export const trouble = (it) => ({
  async "a token that is revoked is forgotten, which the page says, and reading goes on"() {
    const { page, errors, close } = await it.open("vm/db");
    await it.ready(page, "vm/db");
    await it.enterToken(page, await it.daemon.token("short", "operate"));
    await page.getByRole("button", { name: "Token ✓" }).waitFor();
    const { status } = await it.daemon.ask("DELETE", "/v1/tokens/short");
    assert.ok(status < 300, `revoked: ${status}`);
    await page.getByRole("alert").filter({ hasText: "refused the token" }).waitFor();
    await page.getByRole("button", { name: "Token", exact: true }).waitFor();
    // Requests are answered again, and other pages can be reached.
    const [answer] = await Promise.all([
      page.waitForResponse((it) => it.url().endsWith("/v1/vms/db") && it.request().method() === "GET" && it.ok()),
      page.getByRole("button", { name: "Close" }).click(),
    ]);
    assert.equal(answer.status(), 200);
    await page.getByRole("link", { name: "Transfers" }).click();
    await page.getByRole("heading", { name: "Deadline transfers" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    assert.deepEqual(it.unexpected(errors), []);
    await close();
  },

  async "an answer of /healthz that is an error is told, and the page goes on"() {
    for (const status of [401, 403, 500, 503]) {
      const json = { error: { what: `no health today, ${status}`, where: "requests", allowed: null } };
      const prepare = (page) => page.route("**/healthz", (route) => route.fulfill({ status, json }));
      const { page, errors, close } = await it.open("", { prepare });
      await page.getByRole("alert").filter({ hasText: json.error.what }).waitFor();
      await it.ready(page, "");
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByRole("button", { name: "Go on" }).waitFor();
      assert.deepEqual(errors.filter((text) => !text.includes(`status of ${status}`)), []);
      await close();
    }
    const degraded = { status: "failing", problems: ["a disk hangs"] };
    const prepare = (page) => page.route("**/healthz", (route) => route.fulfill({ status: 503, json: degraded }));
    const { page, close } = await it.open("", { prepare });
    await page.getByRole("alert").filter({ hasText: "failing" }).filter({ hasText: "a disk hangs" }).waitFor();
    await close();
  },

  async "a page that cannot be drawn says so, and the others go on"() {
    const prepare = (page) => page.route("**/v1/vms/db", (route) => route.fulfill({ json: {} }));
    const { page, close } = await it.open("vm/db", { prepare });
    await page.getByRole("alert").filter({ hasText: "cannot be drawn" }).waitFor();
    await page.getByRole("link", { name: "Overview" }).click();
    await it.ready(page, "");
    assert.equal(await page.getByRole("alert").count(), 0);
    await close();
  },

  async "figures of a daemon that stands still are dimmed with their age, and live again afterwards"() {
    const { page, close } = await it.open();
    await it.ready(page, "");
    it.daemon.process.kill("SIGSTOP");
    try {
      await page.locator("header .mark.bad", { hasText: /no answer: values are \d+ s old/ }).waitFor();
      await page.locator("main .old table").first().waitFor();
    } finally {
      it.daemon.process.kill("SIGCONT");
    }
    await it.ready(page, "");
    await page.locator("main .old").waitFor({ state: "detached" });
    await close();
  },

  async "a device that does not answer is told by the mark, with the age of the figures"() {
    const { page, errors, close } = await it.open("", { prepare: fakeEvents });
    const live = async () => {
      const at_ms = await page.evaluate(() => Date.now());
      await emit(page, "sample", { at_ms, devices: [], vms: [] });
    };
    await live();
    await page.locator("header .mark.good", { hasText: "live" }).waitFor();
    const timer = setInterval(() => emit(page, "problem", { error: { what: "nvme0 does not answer" } }), 500);
    await page.locator("header .mark.bad", { hasText: /device does not answer: values are \d+ s old/ }).waitFor();
    await page.getByRole("alert").filter({ hasText: "nvme0 does not answer" }).waitFor();
    clearInterval(timer);
    await live();
    await page.locator("header .mark.good", { hasText: "live" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    // Without a word from the connection it is made anew.
    const opened = await page.evaluate(() => window.sources.length);
    await until("another connection", () => page.evaluate((n) => window.sources.length > n, opened));
    assert.equal(await page.evaluate(() => window.sources.filter((it) => it.readyState !== 2).length), 1);
    assert.deepEqual(errors, []);
    await close();
  },

  async "a page that is refused the events says why"() {
    const what = "16 other clients follow the events";
    const refuse = (page) =>
      page.route(/\/v1\/events/, (route) => route.fulfill({ status: 503, json: { error: { what, where: "events" } } }));
    for (const more of [() => {}, withoutLocks]) {
      const prepare = (page) => Promise.all([refuse(page), more(page)]);
      const { page, close } = await it.open("", { prepare });
      await page.getByRole("alert").filter({ hasText: what }).waitFor();
      await close();
    }
  },

  async "a page without locks gives up requests that hang, and asks again"() {
    const failed = [];
    let hangs = true;
    const prepare = async (page) => {
      await withoutLocks(page);
      await page.route(/\/v1\/events/, (route) => (hangs ? undefined : route.continue()));
      page.on("requestfailed", (request) => request.url().includes("/v1/events") && failed.push(request));
    };
    const { page, close } = await it.open("", { prepare });
    const asked = await page.waitForRequest(/\/v1\/events/);
    await page.keyboard.press("p");
    await until("the request is given up", () => failed.includes(asked));
    hangs = false;
    await page.keyboard.press("p");
    await it.ready(page, "");
    await close();
  },

  async "a page that finds all places taken says so and polls, until there is one"() {
    const others = await Promise.all(
      Array.from({ length: 16 }, () => new Promise((done, fail) => {
        const request = http.get(`${it.daemon.url}v1/events`, (answer) => done({ request, answer: answer.resume() }));
        request.on("error", fail);
      })),
    );
    const { page, errors, close } = await it.open();
    try {
      assert.deepEqual(others.map(({ answer }) => answer.statusCode), Array(16).fill(200));
      await page.getByRole("status").filter({ hasText: "16 other pages of the dashboard follow the events" }).waitFor();
      await page.locator("header .mark.good", { hasText: "live, asked each second" }).waitFor();
      await it.ready(page, "");
      assert.equal(await page.getByRole("alert").count(), 0);
    } finally {
      for (const { request } of others) request.on("error", () => {}).destroy();
    }
    await page.getByRole("status").waitFor({ state: "detached", timeout: 60_000 });
    await page.locator("header .mark.good", { hasText: /^● live$/ }).waitFor();
    assert.deepEqual(errors.filter((text) => !/status of 503/.test(text)), []);
    await close();
  },

  async "a paused page asks for nothing but health, and goes on at once"() {
    const { page, errors, close } = await it.open("vm/db");
    await it.ready(page, "vm/db");
    await page.keyboard.press("p");
    await page.locator("header .mark", { hasText: "paused" }).waitFor();
    await page.waitForLoadState("networkidle");
    const asked = [];
    const note = (request) => asked.push(new URL(request.url()).pathname);
    page.on("request", note);
    // Twice the time between two requests for the state of health, five between those of the VM.
    for (let i = 0; i < 2; i++) await page.waitForRequest("**/healthz");
    assert.deepEqual([...new Set(asked)], ["/healthz"]);
    await Promise.all([page.waitForRequest("**/v1/vms/db"), page.waitForRequest("**/history*"), page.keyboard.press("p")]);
    assert.deepEqual(errors, []);
    await close();
  },

  async "coarse and lone points are drawn, and a time without a daemon is told from an idle one"() {
    const latency = { p50_ns: 50e6, p99_ns: 100e6, p999_ns: 150e6, max_ns: 160e6 };
    let answer;
    const prepare = (page) => page.route("**/v1/vms/db/history*", (route) => route.fulfill({ json: answer }));
    const show = async (ms, intervals, isRecorded = true) => {
      const to_ms = Date.now();
      const from_ms = to_ms - 300_000;
      const all = intervals.map((from) => ({
        from_ms: from_ms + from,
        to_ms: from_ms + from + ms,
        observed_ms: ms,
        values: { reads: 100, device_us: 100_000 },
        latency,
      }));
      answer = { from_ms, to_ms, step_s: 1, intervals: all, recorded: isRecorded ? [{ from_ms, to_ms }] : [] };
      return it.open("vm/db", { prepare });
    };
    /** Points of a chart's picture that have its first series' colour. */
    const points = (page, title) =>
      page.getByRole("figure", { name: title, exact: true }).locator("canvas").evaluate((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4) n += data[i] < 60 && data[i + 2] > 200 && data[i + 3] > 200;
        return n;
      });
    const series = (n, every) => Array.from({ length: n }, (_, i) => i * every);
    for (const [what, ms, begins] of [
      ["points of 4 s", 4000, series(75, 4000)],
      ["a second out of three", 1000, series(100, 3000)],
    ]) {
      const { page, errors, close } = await show(ms, begins);
      for (const title of ["Requests a second", "Latency"]) {
        await until(`${what}: ${title} is drawn`, async () => (await points(page, title)) > 200);
      }
      assert.deepEqual(errors, []);
      await close();
    }
    for (const [isRecorded, said] of [[true, "Idle in all of this time."], [false, "no daemon recorded"]]) {
      const { page, close } = await show(1000, [], isRecorded);
      await page.getByText(said).waitFor();
      await close();
    }
  },

  async "figures since the page is open begin anew with the daemon, and the page says so"() {
    const times = (n) => ({ count: n, mean_ns: 1000, buckets: [[1000, n], [2000, n]] });
    const of = (vm, n, other) => {
      const both = { read: times(n), write: times(n) };
      const waited_behind = [{ vm: other, ns: n * 1e9 }];
      return { vm, device: "nvme0", latency: times(n), queue_time: both, service_time: both, waited_behind };
    };
    let n = 100;
    const prepare = (page) =>
      page.route("**/v1/stats*", (route) => route.fulfill({ json: { vms: [of("db", n, "web"), of("web", n, "db")] } }));
    const { page, errors, close } = await it.open("device/nvme0", { prepare });
    const cell = page.getByRole("region", { name: "Who delayed whom" }).locator("tbody td").filter({ hasText: "s" }).first();
    await until("since the start", async () => (await cell.textContent()) === "100 s");
    await page.getByRole("button", { name: "Since this page is open" }).click();
    await page.getByText("No VM waited for another one.").waitFor();
    n = 130;
    await until("since it was opened", async () => (await cell.count()) && (await cell.textContent()) === "30.0 s");
    n = 40;
    await until("since the restart", async () => (await cell.textContent()) === "40.0 s");
    await page.getByText("Counters began anew shortly before").waitFor();
    assert.deepEqual(errors, []);
    await close();
  },

  async "pages of one VM and of one device ask for its counters alone"() {
    for (const [route, query] of [["vm/db", "?buckets=true&vm=db"], ["device/nvme0", "?device=nvme0"]]) {
      let asked;
      const prepare = (page) => void (asked = page.waitForRequest(/\/v1\/stats/));
      const { page, errors, close } = await it.open(route, { prepare });
      const request = await asked;
      assert.equal(new URL(request.url()).search, query);
      const { vms } = await (await request.response()).json();
      assert.deepEqual(vms.map((it) => it.vm), route === "vm/db" ? ["db"] : ["db", "web"]);
      await it.ready(page, route);
      assert.deepEqual(errors, []);
      await close();
    }
  },

  async "a proxy that asks for a password passes reading and changes on"() {
    const proxy = await startProxy(it.daemon.port, "ops:secret");
    try {
      const httpCredentials = { username: "ops", password: "secret" };
      const { page, errors, close } = await it.open("vm/db", { httpCredentials, base: proxy.url });
      await it.ready(page, "vm/db");
      await it.enterToken(page, await it.daemon.token("by-proxy", "operate"));
      await page.getByRole("button", { name: "Token ✓" }).waitFor();
      await page.getByRole("button", { name: "Change …" }).click();
      await page.getByLabel("Weight").fill("110");
      await page.getByRole("button", { name: "Put in force" }).click();
      await page.getByRole("status").filter({ hasText: "weight 110" }).waitFor();
      const { body } = await it.daemon.ask("PATCH", "/v1/vms/db/objective", { weight: 100 });
      assert.equal(body.objective.weight, 100);
      assert.deepEqual(it.unexpected(errors), []);
      await close();
    } finally {
      proxy.end();
    }
  },

  async "the distribution is that of the span of the charts, and says what it lacks"() {
    const prepare = (page) =>
      page.route("**/v1/vms/db/history*", (route) => {
        const url = new URL(route.request().url());
        const to_ms = Date.now();
        const from_ms = to_ms - (url.searchParams.get("from") === "-5m" ? 300_000 : 900_000);
        const step_s = parseInt(url.searchParams.get("step"));
        const values = { reads: 100, others: 20 };
        const interval = { from_ms, to_ms: from_ms + 1000 * step_s, observed_ms: 1000, values };
        const has = url.searchParams.get("buckets") === "true" && step_s >= 10;
        const buckets = has ? [[1e6, 60], [2e6, 40], [64e6, 10]] : undefined;
        return route.fulfill({ json: { from_ms, to_ms, step_s, intervals: [interval], recorded: [{ from_ms, to_ms }], buckets } });
      });
    const { page, errors, close } = await it.open("vm/db", { prepare });
    const chart = page.getByRole("figure", { name: "Share of requests that took at most so long", exact: true });
    for (const [span, said] of [["5 min", "Requests of the last 5 min"], ["15 min", "Requests of the last 15 min"]]) {
      await page.getByRole("button", { name: span, exact: true }).click();
      await page.getByText(said).filter({ hasText: "10 of 120 requests are left out" }).waitFor();
      await chart.locator("canvas").waitFor();
    }
    await page.getByRole("button", { name: "Since the start" }).click();
    await chart.getByText("device").waitFor();
    assert.deepEqual(errors, []);
    await close();
  },

  async "who misses a promise now is said first, and times are the same in every language"() {
    const of = (vm, missed_lately_s) => ({
      ...liveVm(vm),
      attainment: [{ part: "latency", kept: true, kept_percent: 99.97, missed_lately_s, best_effort: false }],
    });
    const options = { prepare: fakeEvents, locale: "fi-FI", timezoneId: "Asia/Kolkata" };
    const { page, errors, close } = await it.open("", options);
    const device = { name: "nvme0", backing: "memory", policy: "slo", depth: 32, in_flight: 0, queued: 0, errors: 0 };
    // Five past midnight in India.
    const at_ms = Date.parse("2026-11-27T18:35:03Z");
    await emit(page, "sample", { at_ms, devices: [device], vms: [of("calm", 0), of("late", 12)] });
    await page.locator(".card").filter({ hasText: "missed lately: 1 VM in the last 5 min" }).waitFor();
    await page.locator("tbody tr", { hasText: "late" }).filter({ hasText: "missed lately: 12 s in 5 min" }).waitFor();
    await page.getByRole("button", { name: "Promises" }).click();
    assert.deepEqual(await page.locator("tbody th").allTextContents(), ["late", "calm"]);
    assert.equal(await page.locator("header .mark").getAttribute("title"), "last event at 00:05:03");
    await page.getByRole("link", { name: "Recordings" }).click();
    await page.getByText("Times are those of Asia/Calcutta (UTC+05:30)").or(page.getByText("Asia/Kolkata (UTC+05:30)")).waitFor();
    assert.deepEqual(errors, []);
    await close();
  },

  async "a thousand VMs are drawn in parts, and found by the filter"() {
    const { page, errors, close } = await it.open("", { prepare: fakeEvents });
    const vms = Array.from({ length: 1000 }, (_, i) => liveVm(`vm${String(i).padStart(3, "0")}`));
    await emit(page, "sample", { at_ms: Date.now(), devices: [], vms });
    const rows = page.locator("tbody tr");
    await page.getByRole("button", { name: "Show 200 more" }).click();
    await until("400 rows", async () => (await rows.count()) === 400);
    await page.getByLabel("Filter VMs").fill("vm987");
    await until("one row", async () => (await rows.count()) === 1);
    assert.deepEqual(errors, []);
    await close();
  },

  async "rows off the screen are drawn when they are scrolled to, and every ten seconds"() {
    const { page, errors, close } = await it.open("", { prepare: fakeEvents });
    const names = Array.from({ length: 100 }, (_, i) => `vm${String(i).padStart(2, "0")}`);
    const event = (s, pending) => emit(page, "sample", { at_ms: 1000 * s, devices: [], vms: names.map((name) => ({ ...liveVm(name), pending })) });
    const waiting = (name) => page.locator("tbody tr", { hasText: name }).locator("td").nth(7);
    const shows = async (name, pending) => (await waiting(name).textContent()) === String(pending);
    let pending = 0;
    // The browser tells the page which rows are seen some time after they are drawn.
    await until("a row off the screen is not drawn", async () => {
      await event(1, ++pending);
      await until("the first row is drawn", () => shows("vm00", pending));
      return !(await shows("vm99", pending));
    });
    await event(10.9, 1000);
    await until("the first row is drawn", () => shows("vm00", 1000));
    assert.ok(!(await shows("vm99", 1000)), "drawn too early");
    await event(11, 1001);
    await until("the last row is drawn", () => shows("vm99", 1001));
    await event(12, 1002);
    await until("the first row is drawn", () => shows("vm00", 1002));
    assert.ok(await shows("vm99", 1001), "drawn again at once");
    await waiting("vm99").scrollIntoViewIfNeeded();
    await until("the last row is drawn", () => shows("vm99", 1002));
    assert.deepEqual(errors, []);
    await close();
  },

  async "charts are drawn with their figures, not with each event"() {
    const prepare = async (page) => {
      await fakeEvents(page);
      await page.addInitScript(() => {
        window.drawn = 0;
        const { clearRect } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.clearRect = function (...all) {
          window.drawn += 1;
          return clearRect.apply(this, all);
        };
      });
    };
    const { page, errors, close } = await it.open("vm/db", { prepare });
    // Its figures are renewed once a minute, of which this test takes a few seconds.
    await page.getByRole("button", { name: "24 h" }).click();
    await page.locator("figure canvas").nth(4).waitFor();
    await page.waitForLoadState("networkidle");
    const event = async (i) => {
      await emit(page, "sample", { at_ms: 1000 * i, devices: [], vms: [{ ...liveVm("db"), pending: i }] });
      await page.locator("dl", { hasText: "Waiting" }).filter({ hasText: `Waiting${i}` }).waitFor();
    };
    await event(1);
    const before = await page.evaluate(() => window.drawn);
    assert.ok(before > 0, "charts were drawn");
    for (let i = 2; i < 6; i++) await event(i);
    assert.equal(await page.evaluate(() => window.drawn), before);
    assert.deepEqual(errors, []);
    await close();
  },

  async "a transfer is not started for a VM that nobody chose"() {
    const { page, errors, close } = await it.open("transfers");
    await it.ready(page, "transfers");
    const sent = [];
    page.on("request", (request) => request.method() === "PUT" && sent.push(request.url()));
    await page.getByRole("button", { name: "Start …" }).click();
    await page.getByLabel("Size").fill("10 GiB");
    await page.getByLabel("Deadline from now").fill("2 h");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    const vm = page.getByRole("combobox", { name: "VM" });
    assert.equal(await vm.evaluate((it) => it.matches(":invalid:focus")), true);
    await vm.selectOption("backup");
    // Refused for the want of a token, but sent for the VM that was chosen.
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.getByRole("alert").filter({ hasText: "needs a token" }).waitFor();
    assert.deepEqual(sent.map((url) => new URL(url).pathname), ["/v1/vms/backup/job"]);
    assert.deepEqual(it.unexpected(errors), []);
    await close();
  },
});
