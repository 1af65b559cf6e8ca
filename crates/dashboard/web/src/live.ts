// Events of the daemon: the last one, and what is needed of those before it.

import { useEffect, useState } from "preact/hooks";
import type { Live, LiveVm } from "./api";

/** Points of a sparkline, one a second. */
const POINTS = 60;

export type Connection = "connecting" | "live" | "paused" | "lost";

export interface State {
  connection: Connection;
  live: Live | null;
  /** Requests a second of each VM, the oldest first. */
  rates: Map<string, number[]>;
  /** A device that does not answer, in the daemon's words. */
  problem: string | null;
}

let state: State = { connection: "connecting", live: null, rates: new Map(), problem: null };
const listeners = new Set<() => void>();
let source: EventSource | null = null;
let paused = false;

function set(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

export function requests(vm: LiveVm): number | undefined {
  if (vm.reads_per_s === undefined) return undefined;
  return vm.reads_per_s + (vm.writes_per_s ?? 0);
}

function sample(live: Live): void {
  const rates = new Map<string, number[]>();
  for (const vm of live.vms) {
    const points = state.rates.get(vm.vm) ?? [];
    const rate = requests(vm);
    // Copied only where it changes: rows compare them.
    rates.set(vm.vm, rate === undefined ? points : [...points.slice(1 - POINTS), rate]);
  }
  set({ connection: "live", live, rates, problem: null });
}

function open(): void {
  close();
  source = new EventSource("/v1/events");
  source.addEventListener("sample", (event) => sample(JSON.parse(event.data) as Live));
  source.addEventListener("problem", (event) => {
    set({ problem: JSON.parse(event.data)?.error?.what ?? "a device does not answer" });
  });
  // The browser connects again after an interruption, but not after an error status.
  source.addEventListener("error", () => {
    const isOver = source?.readyState === EventSource.CLOSED;
    set({ connection: "lost" });
    if (isOver) setTimeout(() => source && !paused && open(), 3000);
  });
}

function close(): void {
  source?.close();
  source = null;
}

/** Holds the figures still, and lets the daemon make none for this page. */
function setPaused(on: boolean): void {
  paused = on;
  if (on) {
    close();
    set({ connection: "paused" });
  } else {
    set({ connection: "connecting" });
    open();
  }
}

/** Pauses, or goes on. By the state in force: that of a page may not be drawn yet. */
export function togglePaused(): void {
  setPaused(!paused);
}

export function start(): void {
  open();
  // A page that nobody sees costs nothing, and browsers have few connections for a host.
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) close();
    else open();
  });
}

export function useLive(): State {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return state;
}
