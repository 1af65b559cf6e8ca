// Tests of many windows of one browser, which opens six connections to a host for all of them.

import assert from "node:assert/strict";
import { until } from "./daemon.mjs";
import { emit, fakeEvents, liveVm } from "./trouble.mjs";

const WINDOWS = 7;

/** Tests by name; `it` has the helpers of `run.mjs`. */
export function windows(it) {
  /** Opens windows of one browser; `streams` are those that follow the events at present. */
  async function openWindows(route, prepare) {
    const all = [];
    const streams = [];
    const follow = (page) => {
      const isStream = (request) => request.url().endsWith("/v1/events");
      const end = () => streams.includes(page) && streams.splice(streams.indexOf(page), 1);
      page.on("request", (request) => isStream(request) && streams.push(page));
      for (const how of ["requestfinished", "requestfailed"]) page.on(how, (request) => isStream(request) && end());
      page.on("close", end);
      return prepare?.(page);
    };
    while (all.length < WINDOWS) all.push(await it.open(route, { browserOf: all[0]?.page, prepare: follow }));
    return { all, pages: all.map(({ page }) => page), streams, close: all[0].close };
  }

  /** Waits until each page has had two more events than it has now, and has its figures. */
  const live = (pages, route) =>
    Promise.all(pages.map(async (page) => {
      await it.ready(page, route);
      const mark = page.locator("header .mark.good", { hasText: "live" });
      const seen = new Set();
      await until("new events", async () => seen.add(await mark.getAttribute("title")).size > 2);
    }));

  return {
    async "seven windows of one browser are live by one stream, which the next one takes on"() {
      const { all, pages, streams, close } = await openWindows("");
      await live(pages, "");
      const isLed = () => streams.length === 1;
      assert.ok(isLed(), `${streams.length} windows follow the events`);
      // The connections that are left are enough for figures of another page.
      await pages.at(-1).goto(`${pages.at(-1).url()}vm/db`);
      await it.ready(pages.at(-1), "vm/db");
      const [first] = streams;
      await first.close();
      const others = pages.slice(0, -1).filter((page) => page !== first);
      await live(others, "");
      await until("another one leads", () => isLed() && streams[0] !== first);
      // A paused window leaves the events to others, and is live again with them.
      const [second] = streams;
      await second.keyboard.press("p");
      await until("a third one leads", () => isLed() && streams[0] !== second);
      const third = streams[0];
      await live(others.filter((page) => page !== second), "");
      await second.locator("header .mark", { hasText: "paused" }).waitFor();
      await second.keyboard.press("p");
      await live([second], "");
      assert.deepEqual(streams, [third]);
      for (const { errors } of all) assert.deepEqual(errors, []);
      await close();
    },

    async "a window that stands still is replaced, and follows when it goes on"() {
      const { all, pages, streams, close } = await openWindows("");
      await live(pages, "");
      const [stopped] = streams;
      const debug = await stopped.context().newCDPSession(stopped);
      await debug.send("Debugger.enable");
      await debug.send("Debugger.pause");
      const others = pages.filter((page) => page !== stopped);
      await until("another one leads", () => streams.some((page) => page !== stopped));
      await live(others, "");
      await debug.send("Debugger.resume");
      await debug.send("Debugger.disable");
      await live(pages, "");
      await until("one stream", () => streams.length === 1);
      assert.notEqual(streams[0], stopped);
      for (const { errors } of all) assert.deepEqual(errors, []);
      await close();
    },

    async "windows that cannot share, for want of locks, ask each second"() {
      // As on a page by http from another host.
      const prepare = (page) => page.addInitScript(() => delete Navigator.prototype.locks);
      const { all, pages, streams, close } = await openWindows("", prepare);
      for (const page of pages) await page.locator("header .mark.good", { hasText: "live, asked each second" }).waitFor();
      await live(pages, "");
      assert.deepEqual(streams, []);
      for (const { errors } of all) assert.deepEqual(errors, []);
      await close();
    },

    async "every window hears what the leading one is told"() {
      const { pages, close } = await openWindows("", fakeEvents);
      const follows = await Promise.all(pages.map((page) => page.evaluate(() => window.sources.length)));
      assert.deepEqual(follows, [1, ...Array(WINDOWS - 1).fill(0)]);
      const told = async (name, data, shown) => {
        await emit(pages[0], name, data);
        for (const page of pages) await shown(page).waitFor();
      };
      const mark = (text) => (page) => page.locator("header .mark", { hasText: text });
      await told("problem", { error: { what: "nvme0 does not answer" } }, (page) => page.getByText("nvme0 does not answer"));
      await told("sample", { at_ms: Date.now(), devices: [], vms: [liveVm("told")] }, (page) => page.locator("tbody th", { hasText: "told" }));
      await told("error", null, mark("no connection"));
      await close();
    },
  };
}
