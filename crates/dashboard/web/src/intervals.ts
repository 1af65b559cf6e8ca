// Intervals of a history as points of charts: where they are, what was between them, and rates.

import type { History, Interval } from "./api";

/** Longest time between two points of 1 s that follow each other, as in `tidegate report`. */
const FINE_SLACK_MS = 1500;
/** Longest time after the last point in which the next one may not have come yet. */
const END_SLACK_MS = 3000;

/** An interval, or a moment at which an idle time, or one of which nothing is known, begins or ends. */
export type Piece = Interval | "idle" | "unknown";

export interface Pieces {
  /** Times in seconds since 1970. */
  x: number[];
  at: Piece[];
}

/** Intervals in the order of time, with the idle times and those without a daemon between them. */
export function pieces(history: History): Pieces {
  const found: Pieces = { x: [], at: [] };
  const add = (ms: number, piece: Piece) => {
    found.x.push(ms / 1000);
    found.at.push(piece);
  };
  // At both ends, because the bound of a chart is drawn there too.
  const unknown = (from: number, to: number) => {
    if (to <= from) return;
    add(from, "unknown");
    add(to, "unknown");
  };
  const between = (from: number, to: number) => {
    let known = from;
    for (const span of history.recorded) {
      const [begin, end] = [Math.max(span.from_ms, from), Math.min(span.to_ms, to)];
      if (end <= begin) continue;
      unknown(known, begin);
      add(begin, "idle");
      add(end, "idle");
      known = end;
    }
    unknown(known, to);
  };
  const slack = history.step_s === 1 ? FINE_SLACK_MS : 0;
  let ended = history.from_ms;
  for (const it of history.intervals) {
    if (it.from_ms > ended + slack) between(ended, it.from_ms);
    const [from, to] = [Math.max(it.from_ms, history.from_ms), Math.min(it.to_ms, history.to_ms)];
    add((from + to) / 2, it);
    ended = it.to_ms;
  }
  if (history.to_ms > ended + END_SLACK_MS) between(ended, history.to_ms);
  return found;
}

/** Time of a span in which a daemon recorded, in milliseconds. */
export function recordedMs(history: History, fromMs: number, toMs: number): number {
  const overlaps = history.recorded.map((it) => Math.min(it.to_ms, toMs) - Math.max(it.from_ms, fromMs));
  return overlaps.reduce((sum, ms) => sum + Math.max(ms, 0), 0);
}

/**
 * A count of an interval a second, over all of its time in which a daemon recorded: the VM or device
 * may have been observed for a part of it alone, because it was idle otherwise.
 */
export function perSecond(history: History, it: Interval, count: number): number {
  const ms = Math.max(recordedMs(history, it.from_ms, it.to_ms), it.observed_ms, 1);
  return (count * 1000) / ms;
}

export const value = (it: Interval, name: string) => it.values[name] ?? 0;

/** What is said of a span without a point; null if there are points. */
export function emptiness(history: History): string | null {
  if (history.intervals.length > 0) return null;
  const known = recordedMs(history, history.from_ms, history.to_ms);
  if (known === 0) return "Nothing is known of this time: no daemon recorded in it.";
  if (known < history.to_ms - history.from_ms - END_SLACK_MS) return "Idle, as far as a daemon recorded in this time.";
  return "Idle in all of this time.";
}

export interface Class {
  counter: string;
  label: string;
  colour: string;
}

const OF_ITS_OWN: Class[] = [
  { counter: "regulated_us", label: "own limit", colour: "--series-4" },
  { counter: "merged_wait_us", label: "merged", colour: "--series-5" },
  { counter: "deliberate_us", label: "anticipation", colour: "--series-6" },
];
const EXACT: Class[] = [
  { counter: "queued_us", label: "queued", colour: "--series-2" },
  { counter: "device_us", label: "device", colour: "--series-1" },
];
/** Parts of the classes of `EXACT`, by samples; in steps of 10 s and more. */
const SAMPLED: Class[] = [
  { counter: "behind_others_us", label: "behind other VMs", colour: "--series-2" },
  { counter: "own_requests_us", label: "behind its own requests", colour: "--series-3" },
  { counter: "service_us", label: "device", colour: "--series-1" },
  { counter: "slow_device_us", label: "slow device", colour: "--warn" },
  { counter: "unknown_us", label: "unknown", colour: "--muted" },
];

/** Share of the time that the sampled classes have to cover; older daemons did not record them. */
const COVERED = 0.95;

/** Classes that add up to the time of the requests of these intervals: the sampled ones, if they cover it. */
export function classes(intervals: Interval[]): Class[] {
  const sum = (all: Class[]) =>
    all.reduce((us, { counter }) => us + intervals.reduce((n, it) => n + value(it, counter), 0), 0);
  // The samples divide exactly this time: without them it has none of its own.
  const [exact, sampled] = [sum(EXACT), sum(SAMPLED)];
  return [...OF_ITS_OWN, ...(sampled > 0 && sampled >= COVERED * exact ? SAMPLED : EXACT)];
}
