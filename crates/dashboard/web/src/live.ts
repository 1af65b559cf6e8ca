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

function sample(live: Live, connection: "live" | "polled"): void {
  eventMs = performance.now();
  sampled = { ms: eventMs, wallMs: Date.now() };
  const rates = withEvent(state.rates, live.at_ms, live.vms);
  const note = connection === "polled" ? state.note : null;
  set({ connection, live, rates, problem: null, note, ageS: null, isSilent: false });
}

function stuck(body: { error?: { what?: string } } | null): void {
  eventMs = performance.now();
  set({ connection: "stuck", problem: body?.error?.what ?? "a device does not answer", isSilent: false });
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
function take(text: string): void {
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
    if (++asked > POLLS) return open();
    isBusy = true;
    const own = polling;
    try {
      const answer = await fetch("/v1/events?count=1");
      const text = await answer.text();
      if (polling === own && answer.ok) take(text);
    } catch {
      if (polling === own) set({ connection: "lost" });
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
    if (!canPoll) return set({ connection: "lost", problem: said });
    set({ note: `${said}. It asks for one each second instead.` });
    poll();
  } catch {
    if (source === of) set({ connection: "lost" });
  }
}

function open(): void {
  close();
  openedMs = performance.now();
  const opened = new EventSource("/v1/events");
  source = opened;
  opened.addEventListener("sample", (event) => sample(JSON.parse(event.data) as Live, "live"));
  opened.addEventListener("problem", (event) => stuck(JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    // The browser connects again after an interruption; after an error status, `watch` does.
    if (opened.readyState === EventSource.CLOSED) void findReason(opened);
    else set({ connection: "lost", problem: null, isSilent: false });
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
