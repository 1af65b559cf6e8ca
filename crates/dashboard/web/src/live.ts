// Events of the daemon: the last one, and what is needed of those before it. One window of the browser gets them, and
// tells all others.

import { useEffect, useState } from "preact/hooks";
import type { Live } from "./api";
import { NO_RATES, type Rates, withEvent } from "./rates";
import { type Share, share } from "./share";
import { type Connection, judge } from "./watch";

export interface State {
  connection: Connection;
  live: Live | null;
  rates: Rates;
  /** Why there are no figures, in the daemon's words. */
  problem: string | null;
  /** Why the page asks for figures instead of being sent them. */
  note: string | null;
  /** Age of figures that are old, in seconds. */
  ageS: number | null;
  /** Nothing comes from a connection that is open. */
  isSilent: boolean;
}

let state: State = {
  connection: "connecting",
  live: null,
  rates: NO_RATES,
  problem: null,
  note: null,
  ageS: null,
  isSilent: false,
};
const listeners = new Set<() => void>();
let source: EventSource | null = null;
let paused = false;
let openedMs = 0;
let eventMs = 0;
/** Time at which the leading window was last heard. */
let leaderMs = 0;
/** Time of the last sample: of the clock that stands still while the computer sleeps, and of the one that goes on. */
let sampled: { ms: number; wallMs: number } | null = null;

function set(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

/** Time between two requests of a page that is sent no events. */
const POLL_MS = 1000;
/** Number of such requests after which the page asks to be sent events again. */
const POLLS = 10;
let polling: ReturnType<typeof setInterval> | null = null;
/** Why this page asks, for the sample that follows. */
let note: string | null = null;

/** Happening that the leading window tells all windows, itself too. */
type Word =
  | { kind: "sample"; live: Live; connection: "live" | "polled"; note: string | null }
  | { kind: "stuck"; problem: string }
  | { kind: "lost"; problem: string | null }
  /** The leading window is there: told once a second, and to those that ask. */
  | { kind: "leads"; last: Word | null }
  | { kind: "asks" };

/** Time without a word after which another window leads. */
const LEADER_LATE_MS = 5000;

/** Name of the sharing. It changes with the words, as windows may have pages of different versions. */
const EVENTS = "tidegate-events-1";

/** Sharing of the events; null where windows cannot share. */
let windows: Share<Word> | null = null;
/** Last word of this window, for those that are opened later. */
let last: Word | null = null;

/** Takes a word of the leading window, which may be this one. */
function take(word: Word): void {
  if (word.kind === "sample") {
    eventMs = performance.now();
    sampled = { ms: eventMs, wallMs: Date.now() };
    const { live, connection, note } = word;
    const rates = withEvent(state.rates, live.at_ms, live.vms);
    set({ connection, live, rates, problem: null, note, ageS: null, isSilent: false });
  } else if (word.kind === "stuck") {
    eventMs = performance.now();
    set({ connection: "stuck", problem: word.problem, isSilent: false });
  } else if (word.kind === "lost") {
    set({ connection: "lost", problem: word.problem, isSilent: false });
  }
}

/** Takes a word and passes it on. */
function tell(word: Word): void {
  last = word;
  take(word);
  windows?.tell(word);
}

/** Hears another window. */
function hear(word: Word): void {
  if (word.kind === "asks") {
    // Figures that are old would look new there.
    if (windows?.isLeading) windows.tell({ kind: "leads", last: state.ageS === null ? last : null });
    return;
  }
  leaderMs = performance.now();
  if (paused || document.hidden || windows?.isLeading) return;
  if (word.kind !== "leads") take(word);
  else if (word.last && state.connection === "connecting") take(word.last);
}

function sample(live: Live, connection: "live" | "polled"): void {
  tell({ kind: "sample", live, connection, note: connection === "polled" ? note : null });
}

function stuck(body: { error?: { what?: string } } | null): void {
  tell({ kind: "stuck", problem: body?.error?.what ?? "a device does not answer" });
}

/** Returns why the daemon sends no events; null if it does. */
async function refusal(url: string): Promise<string | null> {
  const control = new AbortController();
  const answer = await fetch(url, { signal: control.signal });
  const body = answer.ok ? null : await answer.json();
  // An answer of events has no end.
  control.abort();
  return body?.error?.what ?? null;
}

/** Takes the only event of an answer. */
function takeAnswer(text: string): void {
  const [, name, data] = /^event: (.*)\ndata: (.*)\n\n$/.exec(text) ?? [];
  if (name === "sample") sample(JSON.parse(data!) as Live, "polled");
  else if (name === "problem") stuck(JSON.parse(data!));
}

/** Asks for the last event over and over; now and then asks to be sent all of them. */
function poll(): void {
  let asked = 0;
  let isBusy = false;
  const ask = async () => {
    if (isBusy) return;
    if (++asked > POLLS && windows) return open();
    isBusy = true;
    const own = polling;
    try {
      const answer = await fetch("/v1/events?count=1");
      const text = await answer.text();
      if (polling === own && answer.ok) takeAnswer(text);
    } catch {
      if (polling === own) tell({ kind: "lost", problem: state.problem });
    }
    isBusy = false;
  };
  polling = setInterval(ask, POLL_MS);
  void ask();
}

/** Asks why the events were refused, as an `EventSource` does not tell, and polls where that is possible. */
async function findReason(of: EventSource): Promise<void> {
  try {
    const what = await refusal("/v1/events");
    const canPoll = what !== null && (await refusal("/v1/events?count=1")) === null;
    if (source !== of) return;
    const said = what && `The daemon sends this page no events: ${what}`;
    if (!canPoll) return tell({ kind: "lost", problem: said });
    note = `${said}. It asks for one each second instead.`;
    poll();
  } catch {
    if (source === of) tell({ kind: "lost", problem: state.problem });
  }
}

/** Follows the events, or asks for them where windows cannot share: six that follow would leave no connection. */
function open(): void {
  close();
  openedMs = performance.now();
  if (!windows) return poll();
  const opened = new EventSource("/v1/events");
  source = opened;
  opened.addEventListener("sample", (event) => sample(JSON.parse(event.data) as Live, "live"));
  opened.addEventListener("problem", (event) => stuck(JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    // The browser connects again after an interruption; after an error status, `watch` does.
    if (opened.readyState === EventSource.CLOSED) void findReason(opened);
    else tell({ kind: "lost", problem: null });
  });
}

function close(): void {
  source?.close();
  source = null;
  if (polling !== null) clearInterval(polling);
  polling = null;
}

/** Begins to wait for an event. */
function begin(): void {
  eventMs = performance.now();
  leaderMs = eventMs;
  set({ connection: "connecting" });
  if (!windows) return open();
  windows.join();
  windows.tell({ kind: "asks" });
}

/** Waits for no event, and leaves them to other windows. */
function end(): void {
  windows?.leave();
  close();
}

/** Says how old the figures are, and connects anew if nothing comes. */
function watch(): void {
  if (document.hidden || paused) return;
  if (windows?.isLeading) windows.tell({ kind: "leads", last: null });
  const nowMs = performance.now();
  const ageMs = sampled && Math.max(nowMs - sampled.ms, Date.now() - sampled.wallMs);
  const { ageS, isSilent, reopens } = judge({ connection: state.connection, nowMs, eventMs, ageMs, openedMs });
  if (ageS !== state.ageS || isSilent !== state.isSilent) set({ ageS, isSilent });
  if (windows && !windows.isLeading) {
    // A window that was stopped, by a debugger or the system, holds its lock.
    if (nowMs - leaderMs > LEADER_LATE_MS) {
      leaderMs = nowMs;
      windows.join(true);
    }
  } else if (reopens) {
    open();
  }
}

/** Holds the figures still, and lets the daemon make none for this page. */
function setPaused(on: boolean): void {
  paused = on;
  if (on) {
    end();
    set({ connection: "paused", note: null, ageS: null, isSilent: false });
  } else {
    begin();
  }
}

/** Pauses, or goes on. By the state in force: that of a page may not be drawn yet. */
export function togglePaused(): void {
  setPaused(!paused);
}

export function isPaused(): boolean {
  return paused;
}

/** Calls `listener` after each change of the state; returns what ends that. */
export function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function start(): void {
  windows = share(EVENTS, { lead: open, replaced: close, hear });
  begin();
  setInterval(watch, 1000);
  // A page that nobody sees costs nothing, and browsers have few connections for a host.
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) end();
    else begin();
  });
}

export function useLive(): State {
  const [, redraw] = useState(0);
  useEffect(() => listen(() => redraw((n) => n + 1)), []);
  return state;
}
