// Tests of the page's functions without a browser: node --test tests/unit.test.mjs

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { after, test } from "node:test";
import { createServer } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const server = await createServer({ root, server: { middlewareMode: true, hmr: false, ws: false, watch: null }, logLevel: "error" });
after(() => server.close());
const load = (name) => server.ssrLoadModule(`/src/${name}`);

const { NO_RATES, POINTS, withEvent } = await load("rates.ts");
const { lone, sparkPath } = await load("chart.tsx");
const { classes, emptiness, perSecond, pieces } = await load("intervals.ts");
const { judge } = await load("watch.ts");
const { isAnswer } = await load("api.ts");
const format = await load("format.ts");
const { missedLately, tally, urgency } = await load("promises.ts");
const { anewMs, follow, followAll, since, waits } = await load("since.ts");

// A VM that flushes only.
const vm = (name, rate) => ({ vm: name, ...(rate === undefined ? {} : { requests_per_s: rate, reads_per_s: 0, writes_per_s: 0 }) });
/** Rates after events of one VM, given as seconds and rates. */
const rates = (...events) => events.reduce((all, [s, rate]) => withEvent(all, s * 1000, [vm("a", rate)]), NO_RATES);

test("an error of /healthz is no state of health", () => {
  assert.ok(isAnswer("/healthz", 200, { status: "ok" }));
  assert.ok(isAnswer("/healthz", 503, { status: "failing", problems: [] }));
  for (const status of [401, 403, 500, 503]) assert.ok(!isAnswer("/healthz", status, { error: { what: "" } }), status);
  assert.ok(!isAnswer("/healthz", 401, { status: "ok" }));
  assert.ok(!isAnswer("/v1/vms", 503, { status: "failing" }));
  assert.ok(!isAnswer("/healthz", 503, null));
});

test("the last minute has a gap for each second without an event", () => {
  assert.deepEqual(rates([1, 5], [2, 6]).of.get("a"), [5, 6]);
  assert.deepEqual(rates([1, 5], [4, 6]).of.get("a"), [5, null, null, 6]);
  assert.deepEqual(rates([1, 5], [3601, 6]).of.get("a"), [6], "an hour later");
  assert.deepEqual(rates([1, undefined], [2, 6]).of.get("a"), [6], "not known before");
  assert.deepEqual(rates([100, 5], [40, 6]).of.get("a"), [6], "the clock was set back");
});

test("an event that comes again changes nothing, late ones shift nothing", () => {
  const once = rates([1, 5], [2, 6]);
  assert.equal(withEvent(once, 2000, [vm("a", 9)]), once);
  assert.deepEqual(rates([1, 5], [2.3, 6], [3.1, 7]).of.get("a"), [5, 6, 7]);
});

test("the points of a VM that stays idle are the same array", () => {
  const minute = Array.from({ length: POINTS }, (_, i) => [i + 1, 0]);
  const full = rates(...minute);
  assert.equal(full.of.get("a").length, POINTS);
  const later = withEvent(full, (POINTS + 1) * 1000, [vm("a", 0)]);
  assert.equal(later.of.get("a"), full.of.get("a"));
  const busy = withEvent(later, (POINTS + 2) * 1000, [vm("a", 3)]);
  assert.deepEqual(busy.of.get("a"), [...Array(POINTS - 1).fill(0), 3]);
  const gap = withEvent(later, (POINTS + 3) * 1000, [vm("a", 0)]);
  assert.deepEqual(gap.of.get("a").slice(-2), [null, 0], "a gap is drawn");
});

test("a sparkline breaks at gaps and ends at the right", () => {
  const path = sparkPath([1, 2, null, 2, null, 1, 1], 59, 20);
  assert.equal(path, "M53.0 10.0L54.0 2.0M56.0 2.0h0M58.0 10.0L59.0 10.0");
});

test("figures without new ones are old, and the connection is made anew", () => {
  const at = (it) => judge({ connection: "live", nowMs: 100_000, eventMs: 99_000, ageMs: 1000, openedMs: 0, ...it });
  assert.deepEqual(at({}), { ageS: null, isSilent: false, reopens: false });
  const late = { eventMs: 93_000, ageMs: 7000 };
  assert.deepEqual(at(late), { ageS: 7, isSilent: true, reopens: true });
  assert.equal(at({ ...late, openedMs: 98_000 }).reopens, false, "it was just opened");
  assert.deepEqual(at({ ...late, connection: "lost" }), { ageS: 7, isSilent: false, reopens: true });
  assert.deepEqual(at({ ...late, connection: "paused" }), { ageS: null, isSilent: false, reopens: false });
  assert.deepEqual(at({ ...late, connection: "stuck" }), { ageS: 7, isSilent: false, reopens: false });
  assert.equal(at({ eventMs: 80_000, ageMs: 20_000, connection: "stuck" }).isSilent, true);
  // After a sleep of the computer, its clock alone tells.
  assert.deepEqual(at({ ageMs: 3_600_000 }), { ageS: 3600, isSilent: false, reopens: false });
});

const second = (from, to, values = { reads: 1000 }) => ({ from_ms: from * 1000, to_ms: to * 1000, observed_ms: (to - from) * 1000, values });
const history = (step_s, from, to, intervals, ...recorded) => ({
  from_ms: from * 1000,
  to_ms: to * 1000,
  step_s,
  intervals,
  recorded: recorded.map(([from, to]) => ({ from_ms: from * 1000, to_ms: to * 1000 })),
});
/** Times of pieces with a letter each: an interval, idle, unknown. */
const drawn = (it) => {
  const { x, at } = pieces(it);
  return x.map((s, i) => `${typeof at[i] === "string" ? at[i][0] : "I"}${Math.round(s * 100) / 100}`).join(" ");
};

test("points a bit longer than a second, and points of 4 s, follow each other without a gap", () => {
  const long = [second(100, 101.02), second(101.02, 102.04), second(103.1, 104.12)];
  assert.equal(drawn(history(1, 100, 105, long, [0, 105])), "I100.51 I101.53 I103.61");
  const coarse = [second(100, 104), second(104, 108), second(108, 112)];
  assert.equal(drawn(history(1, 100, 112, coarse, [0, 112])), "I102 I106 I110");
});

test("idle times are known, times without a daemon are not", () => {
  const work = [second(102, 103), second(108, 109)];
  assert.equal(drawn(history(1, 100, 120, work, [0, 120])), "i100 i102 I102.5 i103 i108 I108.5 i109 i120");
  const halves = history(1, 100, 120, work, [0, 105], [107, 120]);
  assert.equal(drawn(halves), "i100 i102 I102.5 i103 i105 u105 u107 i107 i108 I108.5 i109 i120");
  assert.equal(drawn(history(1, 100, 120, [], [110, 120])), "u100 u110 i110 i120");
  assert.equal(drawn(history(1, 100, 120, [])), "u100 u120");
  assert.equal(drawn(history(1, 100, 106, [second(102, 103.5)], [0, 106])), "i100 i102 I102.75", "the next point is on its way");
  assert.equal(drawn(history(10, 100, 135, [second(100, 110), second(120, 140)], [0, 135])), "I105 i110 i120 I127.5");
});

test("a span without points is idle only as far as a daemon recorded", () => {
  assert.equal(emptiness(history(1, 0, 300, [], [0, 300])), "Idle in all of this time.");
  assert.match(emptiness(history(1, 0, 300, [], [100, 300])), /^Idle, as far as a daemon recorded/);
  assert.match(emptiness(history(1, 0, 300, [])), /no daemon recorded/);
  assert.equal(emptiness(history(1, 0, 300, [second(1, 2)], [0, 300])), null);
});

test("rates are those of the recorded time of an interval", () => {
  const it = { ...second(0, 300), observed_ms: 1000 };
  assert.equal(perSecond(history(300, 0, 300, [it], [0, 300]), it, 1000), 1000 / 300);
  assert.equal(perSecond(history(300, 0, 300, [it], [0, 100], [200, 300]), it, 1000), 5);
  assert.equal(perSecond(history(300, 0, 300, [it]), it, 1000), 1000, "as far as it was observed");
});

test("values without a neighbour are marked", () => {
  assert.deepEqual(lone([1, null, 2, 3, undefined, 0, null]), [0, 5]);
  assert.deepEqual(lone([null, 1]), [1]);
  assert.deepEqual(lone([]), []);
});

test("the wait is that behind others only where samples say so", () => {
  const labels = (...values) => classes(values.map((it, i) => second(i, i + 1, it))).map((it) => it.label);
  const exact = { queued_us: 900, device_us: 100 };
  assert.ok(!labels(exact).some((label) => label.includes("behind")));
  assert.ok(labels(exact).includes("queued"));
  const sampled = { behind_others_us: 100, own_requests_us: 800, service_us: 90, slow_device_us: 5, unknown_us: 5 };
  const divided = labels({ ...exact, ...sampled });
  assert.ok(divided.includes("behind other VMs") && divided.includes("behind its own requests"));
  assert.ok(!divided.includes("queued"), "nothing is counted twice");
  assert.ok(labels({ ...exact, ...sampled }, exact).includes("queued"), "half is of an older daemon");
});

const NO_TIMES = { count: 0, mean_ns: 0, buckets: [] };
/** Counters of a VM: buckets of its latency, and waits by VM. */
const stats = (vm, buckets, behind = {}) => ({
  vm,
  device: "nvme0",
  latency: { count: buckets.reduce((sum, [, n]) => sum + n, 0), mean_ns: 1, buckets },
  queue_time: { read: NO_TIMES, write: NO_TIMES },
  service_time: { read: NO_TIMES, write: NO_TIMES },
  waited_behind: Object.entries(behind).map(([vm, ns]) => ({ vm, ns })),
});

test("counters since the page is open begin anew with those of the daemon, which is told", () => {
  const opened = follow(null, stats("a", [[1, 5], [2, 5]]), 1000);
  const later = follow(opened, stats("a", [[1, 6], [2, 9]]), 2000);
  assert.equal(later.anewMs, null);
  assert.deepEqual(since(later.last.latency, later.first.latency), [[1, 1], [2, 4]]);
  // As many requests as before, in other buckets.
  const now = stats("a", [[2, 14], [3, 1]]);
  const anew = follow(later, now, 3000);
  assert.equal(anew.anewMs, 3000);
  assert.deepEqual(since(now.latency, anew.first?.latency), [[2, 14], [3, 1]]);
  assert.equal(follow(anew, stats("a", [[2, 15], [3, 1]]), 4000).anewMs, 3000);
  assert.equal(follow(anew, now, 9000), anew, "drawn again with the same answer");
});

test("the matrix keeps its base for VMs that stay, and has none for those that are new or came back", () => {
  const answers = [
    [stats("a", [[1, 5]], { b: 10, c: 10 }), stats("b", [[1, 5]], { a: 7 })],
    [stats("a", [[1, 6]], { b: 15, d: 3 }), stats("b", [[1, 6]], { a: 9 })],
    // c is among the heaviest again; b was restarted; e is new.
    [stats("a", [[1, 7]], { b: 16, c: 12 }), stats("b", [[1, 2]], { a: 8 }), stats("e", [[1, 1]], { a: 4 })],
  ];
  const bases = answers.reduce((all, it, i) => followAll(all, it, 1000 * (i + 1)), null);
  const plain = Object.fromEntries([...waits(answers[2], bases)].map(([vm, row]) => [vm, Object.fromEntries(row)]));
  assert.deepEqual(plain, { a: { b: 6, c: 12 }, b: { a: 8 }, e: { a: 4 } });
  assert.equal(anewMs(bases), 3000);
  assert.equal(waits(answers[0], null).get("a").get("b"), 10, "since the start");
});

test("a promise that is missed now comes first, also if nearly all of its time was kept", () => {
  const part = (kept, kept_percent, missed_lately_s) => ({ part: "latency", kept, kept_percent, missed_lately_s });
  const of = (name, ...attainment) => ({ vm: name, attainment });
  const vms = [of("none"), of("kept", part(true, 100, 0)), of("long ago", part(false, 50, 0)), of("now", part(true, 99.9, 3)), of("worse", part(true, 99.8, 0), part(true, 99.9, 200))];
  assert.deepEqual([...vms].sort((a, b) => urgency(a) - urgency(b)).map((it) => it.vm), ["worse", "now", "long ago", "kept", "none"]);
  assert.deepEqual(tally(vms), { judged: 4, missed: 1, now: 2 });
  assert.equal(missedLately(undefined), 0);
});

test("times of day have two digits and end at 23:59, in every language and zone", () => {
  const before = process.env.TZ;
  try {
    process.env.TZ = "Europe/Berlin";
    const midnight = Date.parse("2026-11-28T00:05:03+01:00");
    assert.equal(format.clock(midnight), "00:05:03");
    assert.equal(format.minute(midnight + 9 * 3_600_000), "09:05");
    assert.equal(format.stamp(midnight), "2026-11-28 00:05:03");
    assert.equal(format.localStamp("2026-11-27T23:05:03Z"), "2026-11-28 00:05:03");
    assert.equal(format.localStamp("2026-11-27T23:05:03.25+00:00"), "2026-11-28 00:05:03");
    assert.equal(format.localStamp("javascript:1"), "javascript:1");
    assert.match(format.zone(midnight), /\(UTC\+01:00\)$/);
    process.env.TZ = "America/St_Johns";
    assert.match(format.zone(midnight), /\(UTC-03:30\)$/);
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
});

test("shares are rounded down", () => {
  assert.equal(format.percent(99.97), "99.9 %");
  assert.equal(format.percent(98.96), "98.9 %");
  assert.equal(format.percent(99.3), "99.3 %");
  assert.equal(format.percent(100), "100 %");
  assert.equal(format.percent(0), "0 %");
});
