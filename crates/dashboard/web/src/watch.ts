// What the page says of its connection: how old the figures are, and whether to connect anew.

export type Connection = "connecting" | "live" | "polled" | "paused" | "lost" | "stuck";

/** Time without an event after which the figures count as old; there is one a second. */
const LATE_MS = 4000;
/** Same while a device does not answer: each attempt of the daemon takes up to 5 s. */
const STUCK_LATE_MS = 10_000;
/** Shortest time between two connections. */
const REOPEN_MS = 5000;

export interface Watched {
  connection: Connection;
  /** Times in milliseconds of one clock. */
  nowMs: number;
  /** Last event, or the moment at which the page began to wait for one. */
  eventMs: number;
  /** Age of the figures; null before the first. */
  ageMs: number | null;
  openedMs: number;
}

export interface Verdict {
  /** Age of the figures in seconds, once they are old; null for figures of the present. */
  ageS: number | null;
  /** The connection is open, but nothing comes. */
  isSilent: boolean;
  reopens: boolean;
}

/** Judges a connection, once a second. */
export function judge(it: Watched): Verdict {
  if (it.connection === "paused") return { ageS: null, isSilent: false, reopens: false };
  const isLate = it.nowMs - it.eventMs > (it.connection === "stuck" ? STUCK_LATE_MS : LATE_MS);
  const isOld = it.ageMs !== null && it.ageMs > LATE_MS;
  return {
    ageS: isOld ? Math.round(it.ageMs! / 1000) : null,
    isSilent: isLate && it.connection !== "lost",
    reopens: isLate && it.nowMs - it.openedMs >= REOPEN_MS,
  };
}
