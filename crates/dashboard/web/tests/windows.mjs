// Tests of many windows of one browser, which opens six connections to a host for all of them.

import assert from "node:assert/strict";
import { until } from "./daemon.mjs";
import { emit, fakeEvents, liveVm, withoutLocks } from "./trouble.mjs";

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
      const { all, pages, streams, close } = await openWindows("", withoutLocks);
      for (const page of pages) await page.locator("header .mark.good", { hasText: "live, asked each second" }).waitFor();
      await live(pages, "");
      assert.deepEqual(streams, []);
      for (const { errors } of all) assert.deepEqual(errors, []);
      await close();
    },

    async "a window that nobody sees has neither the events nor a channel"() {
      const prepare = (page) =>
        page.addInitScript(() => {
          window.isHidden = true;
          Object.defineProperty(Document.prototype, "hidden", { get: () => window.isHidden });
          window.channels = new Set();
          window.BroadcastChannel = class extends BroadcastChannel {
            constructor(name) {
              super(name);
              window.channels.add(this);
            }
            close() {
              super.close();
              window.channels.delete(this);
            }
          };
        });
      const show = (page, isShown) =>
        page.evaluate((isShown) => {
          window.isHidden = !isShown;
          document.dispatchEvent(new Event("visibilitychange"));
        }, isShown);
      const channels = (page) => page.evaluate(() => window.channels.size);
      const { pages, streams, close } = await openWindows("", prepare);
      const [first, second] = pages;
      assert.equal(await channels(first), 0);
      assert.deepEqual(streams, []);
      for (const page of [first, second]) {
        await show(page, true);
        await live([page], "");
        assert.equal(await channels(page), 1);
      }
      assert.deepEqual(streams, [first]);
      await show(first, false);
      await until("the second window leads", () => streams.length === 1 && streams[0] === second);
      assert.equal(await channels(first), 0);
      await live([second], "");
      await show(second, false);
      await until("no stream is left", () => streams.length === 0);
      await close();
    },

    async "what a replaced leader still sends is passed over"() {
      const { pages, close } = await openWindows("", fakeEvents);
      await emit(pages[0], "sample", { at_ms: Date.now(), devices: [], vms: [liveVm("present")] });
      const others = pages.slice(1);
      for (const page of others) await page.locator("tbody th", { hasText: "present" }).waitFor();
      const live = { at_ms: Date.now(), devices: [], vms: [liveVm("outdated")] };
      const messages = [
        { term: 1, message: { kind: "sample", live, connection: "live", note: null } },
        // Messages of one window arrive in their order.
        { term: 2 ** 50, message: { kind: "stuck", problem: "sent behind it" } },
      ];
      await pages[0].evaluate((messages) => {
        const channel = new BroadcastChannel("tidegate-events-2");
        for (const message of messages) channel.postMessage(message);
      }, messages);
      for (const page of others) {
        await page.getByText("sent behind it").waitFor();
        assert.equal(await page.locator("tbody th", { hasText: "outdated" }).count(), 0);
        assert.equal(await page.locator("tbody th", { hasText: "present" }).count(), 1);
      }
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
