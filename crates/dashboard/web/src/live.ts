// Events of the daemon: the last one, and what is needed of those before it. One window of the browser gets them, and
// broadcasts them to all others.

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
/** Time of the last message of the leading window. */
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
let polling: { timer: ReturnType<typeof setInterval>; control: AbortController } | null = null;
/** Reason for which this page asks, for the sample that follows. */
let note: string | null = null;

/** Message of a window to all others. */
type Message =
  | { kind: "sample"; live: Live; connection: "live" | "polled"; note: string | null }
  | { kind: "stuck"; problem: string }
  | { kind: "lost"; problem: string | null }
  /** Sign of the leading window, sent once a second and as an answer to `ask`. */
  | { kind: "heartbeat"; last: Message | null }
  /** Request of a window that has just joined for the last message. */
  | { kind: "ask" };

/** Time without a message after which another window leads. */
const LEADER_LATE_MS = 5000;

/** Name of the sharing, with the version of its messages: windows may have pages of different versions. */
const EVENTS = "tidegate-events-2";

/** Sharing of the events; null where windows cannot share. */
let windows: Share<Message> | null = null;
/** Last message of this window's present source, for windows that join later. */
let last: Message | null = null;

/** Shows a message of the leading window, which may be this one. */
function apply(message: Message): void {
  if (message.kind === "sample") {
    eventMs = performance.now();
    sampled = { ms: eventMs, wallMs: Date.now() };
    const { live, connection, note } = message;
    const rates = withEvent(state.rates, live.at_ms, live.vms);
    set({ connection, live, rates, problem: null, note, ageS: null, isSilent: false });
  } else if (message.kind === "stuck") {
    eventMs = performance.now();
    set({ connection: "stuck", problem: message.problem, isSilent: false });
  } else if (message.kind === "lost") {
    set({ connection: "lost", problem: message.problem, isSilent: false });
  }
}

/** Shows a message of the daemon here and in all other windows. */
function publish(message: Message): void {
  // A source may have an event left when another window leads already.
  if (windows && !windows.isLeading) return;
  last = message;
  apply(message);
  windows?.broadcast(message);
}

/** Handles a message of another window. */
function receive(message: Message): void {
  if (message.kind === "ask") {
    // Figures that are old would look new there.
    if (windows?.isLeading) windows.broadcast({ kind: "heartbeat", last: state.ageS === null ? last : null });
    return;
  }
  leaderMs = performance.now();
  if (windows?.isLeading) return;
  if (message.kind !== "heartbeat") apply(message);
  else if (message.last && state.connection === "connecting") apply(message.last);
}

function sample(live: Live, connection: "live" | "polled"): void {
  publish({ kind: "sample", live, connection, note: connection === "polled" ? note : null });
}

function stuck(body: { error?: { what?: string } } | null): void {
  publish({ kind: "stuck", problem: body?.error?.what ?? "a device does not answer" });
}

/** Returns the reason for which the daemon sends no events; null if it does. */
async function refusal(url: string): Promise<string | null> {
  const control = new AbortController();
  const answer = await fetch(url, { signal: control.signal });
  const body = answer.ok ? null : await answer.json();
  // An answer of events has no end.
  control.abort();
  return body?.error?.what ?? null;
}

/** Publishes the only event of an answer. */
function publishAnswer(text: string): void {
  const [, name, data] = /^event: (.*)\ndata: (.*)\n\n$/.exec(text) ?? [];
  if (name === "sample") sample(JSON.parse(data!) as Live, "polled");
  else if (name === "problem") stuck(JSON.parse(data!));
}

/** Returns the sentence for a page that gets no events. */
function refused(reason: string): string {
  return `The daemon sends this page no events: ${reason}`;
}

/** Asks for the last event over and over; now and then asks to be sent all of them. */
function poll(): void {
  let asked = 0;
  let isBusy = false;
  const control = new AbortController();
  const ask = async () => {
    if (isBusy) return;
    if (++asked > POLLS && windows) return open();
    isBusy = true;
    try {
      const answer = await fetch("/v1/events?count=1", { signal: control.signal });
      const text = await answer.text();
      if (control.signal.aborted) return;
      if (answer.ok) publishAnswer(text);
      else publish({ kind: "lost", problem: refused(errorOf(text) ?? `its status is ${answer.status}`) });
    } catch {
      if (!control.signal.aborted) publish({ kind: "lost", problem: state.problem });
    }
    isBusy = false;
  };
  polling = { timer: setInterval(ask, POLL_MS), control };
  void ask();
}

/** Returns the error in the body of an answer; null if it has none. */
function errorOf(text: string): string | null {
  try {
    return (JSON.parse(text) as { error?: { what?: string } }).error?.what ?? null;
  } catch {
    return null;
  }
}

/** Shows the reason of a refusal, which an `EventSource` does not have, and polls where that is possible. */
async function findReason(of: EventSource): Promise<void> {
  try {
    const what = await refusal("/v1/events");
    const canPoll = what !== null && (await refusal("/v1/events?count=1")) === null;
    if (source !== of) return;
    const reason = what && refused(what);
    if (!canPoll) return publish({ kind: "lost", problem: reason });
    note = `${reason}. It asks for one each second instead.`;
    poll();
  } catch {
    if (source === of) publish({ kind: "lost", problem: state.problem });
  }
}

/** Follows the events, or asks for them where windows cannot share: six that follow would leave no connection. */
function open(): void {
  close();
  last = null;
  openedMs = performance.now();
  if (!windows) return poll();
  const opened = new EventSource("/v1/events");
  source = opened;
  opened.addEventListener("sample", (event) => sample(JSON.parse(event.data) as Live, "live"));
  opened.addEventListener("problem", (event) => stuck(JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    // The browser connects again after an interruption; after an error status, `watch` does.
    if (opened.readyState === EventSource.CLOSED) void findReason(opened);
    else publish({ kind: "lost", problem: null });
  });
}

function close(): void {
  source?.close();
  source = null;
  if (polling) {
    clearInterval(polling.timer);
    // Requests that hang would take the browser's connections.
    polling.control.abort();
  }
  polling = null;
}

/** Begins to wait for an event. */
function begin(): void {
  end();
  eventMs = performance.now();
  leaderMs = eventMs;
  set({ connection: "connecting" });
  if (!windows) return open();
  windows.join();
  windows.broadcast({ kind: "ask" });
}

/** Follows the events for all windows. */
function lead(): void {
  open();
  // Before its first event, so that no other window takes over meanwhile.
  windows?.broadcast({ kind: "heartbeat", last: null });
}

/** Lets another window follow the events, which took over. */
function replaced(): void {
  close();
  leaderMs = performance.now();
}

/** Waits for no event, and leaves them to other windows. */
function end(): void {
  windows?.leave();
  close();
}

/** Says how old the figures are, and connects anew if nothing comes. */
function watch(): void {
  if (document.hidden || paused) return;
  if (windows?.isLeading) windows.broadcast({ kind: "heartbeat", last: null });
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
  windows = share(EVENTS, { lead, replaced, receive });
  if (!document.hidden) begin();
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
