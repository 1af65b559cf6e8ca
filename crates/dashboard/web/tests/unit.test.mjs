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
const { sparkPath } = await load("chart.tsx");
const { judge } = await load("watch.ts");
const { isAnswer } = await load("api.ts");

const vm = (name, rate) => ({ vm: name, ...(rate === undefined ? {} : { reads_per_s: rate, writes_per_s: 0 }) });
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
