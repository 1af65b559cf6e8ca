// Events of the daemon: the last one, and what is needed of those before it.

import { useEffect, useState } from "preact/hooks";
import type { Live } from "./api";
import { NO_RATES, type Rates, withEvent } from "./rates";
import { type Connection, judge } from "./watch";

export interface State {
  connection: Connection;
  live: Live | null;
  rates: Rates;
  /** Why there are no figures, in the daemon's words. */
  problem: string | null;
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
  ageS: null,
  isSilent: false,
};
const listeners = new Set<() => void>();
let source: EventSource | null = null;
let paused = false;
let openedMs = 0;
let eventMs = 0;
/** Time of the last sample: of the clock that stands still while the computer sleeps, and of the one that goes on. */
let sampled: { ms: number; wallMs: number } | null = null;

function set(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

function sample(live: Live): void {
  eventMs = performance.now();
  sampled = { ms: eventMs, wallMs: Date.now() };
  const rates = withEvent(state.rates, live.at_ms, live.vms);
  set({ connection: "live", live, rates, problem: null, ageS: null, isSilent: false });
}

/** Asks why the events were refused: an `EventSource` does not tell. */
async function findReason(of: EventSource): Promise<void> {
  try {
    const answer = await fetch("/v1/events?count=1");
    const body = answer.ok ? null : await answer.json();
    await answer.body?.cancel().catch(() => {});
    const what = body?.error?.what;
    if (source === of && what) set({ problem: `The daemon sends this page no events: ${what}` });
  } catch {
    // Nothing answers, which the mark of the connection says.
  }
}

function open(): void {
  close();
  openedMs = performance.now();
  const opened = new EventSource("/v1/events");
  source = opened;
  opened.addEventListener("sample", (event) => sample(JSON.parse(event.data) as Live));
  opened.addEventListener("problem", (event) => {
    eventMs = performance.now();
    const problem = JSON.parse(event.data)?.error?.what ?? "a device does not answer";
    set({ connection: "stuck", problem, isSilent: false });
  });
  opened.addEventListener("error", () => {
    set({ connection: "lost", problem: null, isSilent: false });
    // The browser connects again after an interruption; after an error status, `watch` does.
    if (opened.readyState === EventSource.CLOSED) void findReason(opened);
  });
}

function close(): void {
  source?.close();
  source = null;
}

/** Begins to wait for an event. */
function begin(): void {
  eventMs = performance.now();
  set({ connection: "connecting" });
  open();
}

/** Says how old the figures are, and connects anew if nothing comes. */
function watch(): void {
  if (document.hidden) return;
  const nowMs = performance.now();
  const ageMs = sampled && Math.max(nowMs - sampled.ms, Date.now() - sampled.wallMs);
  const { ageS, isSilent, reopens } = judge({ connection: state.connection, nowMs, eventMs, ageMs, openedMs });
  if (ageS !== state.ageS || isSilent !== state.isSilent) set({ ageS, isSilent });
  if (reopens) open();
}

/** Holds the figures still, and lets the daemon make none for this page. */
function setPaused(on: boolean): void {
  paused = on;
  if (on) {
    close();
    set({ connection: "paused", ageS: null, isSilent: false });
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
  begin();
  setInterval(watch, 1000);
  // A page that nobody sees costs nothing, and browsers have few connections for a host.
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) close();
    else begin();
  });
}

export function useLive(): State {
  const [, redraw] = useState(0);
  useEffect(() => listen(() => redraw((n) => n + 1)), []);
  return state;
}
