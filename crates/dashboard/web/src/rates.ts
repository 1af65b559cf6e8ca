// Requests a second of each VM in the last minute, by the second.

import type { LiveVm } from "./api";

/** Seconds of a sparkline. */
export const POINTS = 60;

/** Rates by second, the oldest first; null in a second of which nothing is known. */
export type Points = readonly (number | null)[];

export interface Rates {
  /** Time of the last event, in milliseconds since 1970; 0 before the first. */
  readonly atMs: number;
  readonly of: ReadonlyMap<string, Points>;
}

export const NO_RATES: Rates = { atMs: 0, of: new Map() };

/** Requests of all operations a second of a VM; undefined before it was seen for a second. */
export function requests(vm: LiveVm): number | undefined {
  return vm.requests_per_s;
}

function next(before: Points, seconds: number, rate: number | undefined): Points {
  const value = rate ?? null;
  // The array of a VM whose line stays as it is stays, too: rows compare them.
  if (seconds === 1 && before.length === POINTS && before.every((it) => it === value)) return before;
  const missed = Array<null>(Math.min(seconds - 1, POINTS)).fill(null);
  const points = [...before, ...missed, value].slice(-POINTS);
  const known = points.findIndex((it) => it !== null);
  return known < 0 ? [] : points.slice(known);
}

/** Adds the rates of an event. One that was seen before, as after a connection is made anew, changes nothing. */
export function withEvent(rates: Rates, atMs: number, vms: readonly LiveVm[]): Rates {
  if (atMs === rates.atMs) return rates;
  const seconds = Math.max(1, Math.round((atMs - rates.atMs) / 1000));
  // A clock that was set back begins the minute anew.
  const isAnew = atMs < rates.atMs;
  const of = new Map<string, Points>();
  for (const vm of vms) {
    const before = isAnew ? [] : (rates.of.get(vm.vm) ?? []);
    of.set(vm.vm, next(before, seconds, requests(vm)));
  }
  return { atMs, of };
}
