// Promises of the VMs of an event: which are missed now, and in which order.

import type { LiveAttainment, LiveVm } from "./api";

/** Most seconds of the last 5 minutes in which a part was missed. */
export function missedLately(parts: LiveAttainment[] | undefined): number {
  return Math.max(0, ...(parts ?? []).map((part) => part.missed_lately_s));
}

/** Place in the order of promises: missed now, the most seconds first; then by share; then without a promise. */
export function urgency(vm: LiveVm): number {
  const lately = missedLately(vm.attainment);
  if (lately > 0) return -lately;
  const shares = (vm.attainment ?? []).map((part) => part.kept_percent ?? 100);
  return shares.length ? Math.min(...shares) : 101;
}

export interface Tally {
  judged: number;
  /** Share below what was promised, since the objective was set. */
  missed: number;
  /** Missed in the last 5 minutes. */
  now: number;
}

/** Counts VMs with promises by how those are kept. */
export function tally(vms: LiveVm[]): Tally {
  const some = (test: (part: LiveAttainment) => boolean) => vms.filter((vm) => vm.attainment?.some(test)).length;
  return {
    judged: some((part) => part.kept !== undefined),
    missed: some((part) => part.kept === false),
    now: some((part) => part.missed_lately_s > 0),
  };
}
