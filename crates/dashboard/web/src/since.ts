// Counters since this page is open: what to subtract, also after they began anew.

import type { Times, VmStats } from "./api";

export interface Base {
  /** Counters at which the page began to count; null: counting began at 0. */
  first: VmStats | null;
  last: VmStats;
  /** Time at which counters were first seen to have begun anew; null if they did not. */
  anewMs: number | null;
}

const times = (it: VmStats): Times[] => [
  it.latency,
  it.queue_time.read,
  it.queue_time.write,
  it.service_time.read,
  it.service_time.write,
];

/** Returns whether a counter is lower than before: the daemon was restarted, or the VM added again. */
function wentBack(before: VmStats, now: VmStats): boolean {
  const old = times(before);
  return times(now).some((it, i) => {
    if (it.count < old[i]!.count) return true;
    if (!it.buckets || !old[i]!.buckets) return false;
    const counts = new Map(it.buckets);
    return old[i]!.buckets!.some(([at, n]) => (counts.get(at) ?? 0) < n);
  });
}

/** Without VMs that left the list of the heaviest: one that comes back counts from 0. */
function stillListed(first: VmStats, now: VmStats): VmStats {
  const listed = new Map(now.waited_behind.map(({ vm, ns }) => [vm, ns]));
  return { ...first, waited_behind: first.waited_behind.filter(({ vm, ns }) => (listed.get(vm) ?? -1) >= ns) };
}

/** Base of a VM's counters after an answer; `base` is the one before, null in the first answer. */
export function follow(base: Base | null, now: VmStats, nowMs: number): Base {
  if (!base) return { first: now, last: now, anewMs: null };
  if (base.last === now) return base;
  if (wentBack(base.last, now)) return { first: null, last: now, anewMs: nowMs };
  return { ...base, first: base.first && stillListed(base.first, now), last: now };
}

export type Bases = ReadonlyMap<string, Base>;

/** Bases of all VMs after an answer; `bases` are those before, null in the first answer. */
export function followAll(bases: Bases | null, now: VmStats[], nowMs: number): Bases {
  // A VM that was not there counts from 0; so does one that comes back.
  const fresh = (it: VmStats): Base => ({ first: null, last: it, anewMs: null });
  return new Map(
    now.map((it) => {
      const base = bases?.get(it.vm);
      return [it.vm, bases && !base ? fresh(it) : follow(base ?? null, it, nowMs)];
    }),
  );
}

/** Latest time at which counters began anew; null if none did. */
export function anewMs(bases: Bases): number | null {
  const all = [...bases.values()].flatMap((it) => it.anewMs ?? []);
  return all.length ? Math.max(...all) : null;
}

/** Waits of each VM for others, since the start of the counters or since their bases. */
export function waits(now: VmStats[], bases: Bases | null): Map<string, Map<string, number>> {
  return new Map(
    now.map((it) => {
      const was = new Map(bases?.get(it.vm)?.first?.waited_behind.map(({ vm, ns }) => [vm, ns]));
      const row = it.waited_behind.map(({ vm, ns }): [string, number] => [vm, ns - (was.get(vm) ?? 0)]);
      return [it.vm, new Map(row.filter(([, ns]) => ns > 0))];
    }),
  );
}

/** Times by bucket that were counted since `first`. */
export function since(now: Times, first: Times | undefined): [number, number][] {
  const before = new Map(first?.buckets ?? []);
  const counted = (now.buckets ?? []).map(([at, n]): [number, number] => [at, n - (before.get(at) ?? 0)]);
  return counted.filter(([, n]) => n > 0);
}
