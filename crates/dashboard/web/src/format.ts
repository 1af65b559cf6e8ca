// Figures for people.

const SPACE = "\u202f";

/** Three significant digits, with spaces between thousands. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const places = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2;
  const [whole, fraction] = value.toFixed(places).split(".");
  const grouped = (whole ?? "").replace(/\B(?=(\d{3})+$)/g, SPACE);
  return fraction ? `${grouped}.${fraction}` : grouped;
}

export function whole(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, SPACE);
}

/** A time in nanoseconds. */
export function duration(ns: number | undefined | null): string {
  if (ns === undefined || ns === null) return "–";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const) {
    if (ns >= size) return `${digits(ns / size)} ${unit}`;
  }
  return `${digits(ns)} ns`;
}

/** A bandwidth in bytes a second, in decimal units as objectives have them. */
export function bandwidth(bytes: number | undefined): string {
  if (bytes === undefined) return "–";
  for (const [unit, size] of [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]] as const) {
    if (bytes >= size) return `${digits(bytes / size)} ${unit}`;
  }
  return bytes === 0 ? "0" : `${digits(bytes)} B/s`;
}

/** A size in binary units, as disks and transfers have them. */
export function size(bytes: number): string {
  for (const [unit, by] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]] as const) {
    if (bytes >= by) return `${digits(bytes / by)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Whole seconds as hours, minutes and seconds. */
export function span(seconds: number): string {
  const s = Math.abs(Math.round(seconds));
  const parts = [
    [Math.floor(s / 3600), "h"],
    [Math.floor((s % 3600) / 60), "min"],
    [s % 60, "s"],
  ] as const;
  const said = parts.filter(([n]) => n > 0).slice(0, 2).map(([n, unit]) => `${n} ${unit}`);
  return said.join(" ") || "0 s";
}

/** A share, rounded down as the command line does: what is missed in part is below 100 %. */
export function percent(value: number | undefined): string {
  if (value === undefined) return "–";
  // Slack for tenths that have no exact binary form.
  const tenths = Math.floor(value * 10 + 1e-6) / 10;
  return `${tenths >= 100 || value === 0 ? tenths.toFixed(0) : tenths.toFixed(1)} %`;
}

const two = (n: number) => n.toString().padStart(2, "0");

/** Time of day in the browser's zone as 14:03, whatever its language has. */
export function minute(ms: number): string {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** Time of day in the browser's zone as 14:03:10. */
export function clock(ms: number): string {
  return `${minute(ms)}:${two(new Date(ms).getSeconds())}`;
}

/** Date and time of day in the browser's zone as 2026-11-28 14:03:10. */
export function stamp(ms: number): string {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

/** A time of the daemon (RFC 3339) in the browser's zone; a text that is none as it is. */
export function localStamp(text: string): string {
  const ms = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(ms) ? text : stamp(ms);
}

/** The browser's zone by name and offset, as of a time. */
export function zone(ms: number): string {
  const east = -new Date(ms).getTimezoneOffset();
  const offset = `UTC${east < 0 ? "-" : "+"}${two(Math.floor(Math.abs(east) / 60))}:${two(Math.abs(east) % 60)}`;
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  return timeZone ? `${timeZone} (${offset})` : offset;
}

import type { Objective } from "./api";

/** Rates of a limit by direction. */
function limits(limit: NonNullable<Objective["limit"]>): string[] {
  const said: string[] = [];
  if (limit.total) said.push(`at most ${limit.total}`);
  if (limit.read) said.push(`reads at most ${limit.read}`);
  if (limit.write) said.push(`writes at most ${limit.write}`);
  if (limit.burst) said.push("with bursts");
  return said;
}

/** An objective on one line, as the command line says it. */
export function objective(it: Objective): string {
  const said: string[] = [];
  if (it.reservation) said.push(`at least ${it.reservation}`);
  if (it.limit) said.push(...limits(it.limit));
  if (it.target) said.push(`exactly ${it.target}`);
  if (it.latency) said.push(`within ${it.latency}`);
  if (it.weight !== 100 || said.length === 0) said.push(`weight ${it.weight}`);
  if (it.group) said.push(`group ${it.group.name}`);
  if (it.priority !== "best-effort 4") said.push(it.priority);
  return said.join("; ");
}
