// Requests of the control API, with the types of its answers that the page uses.
// crates/api documents every field.

export interface Objective {
  reservation: string | null;
  limit: { total: string | null; read: string | null; write: string | null; burst: unknown } | null;
  target: string | null;
  weight: number;
  group: { name: string; weight: number } | null;
  latency: string | null;
  priority: string;
}

export interface Account {
  regulated_ns: number;
  queued_ns: number;
  merged_wait_ns: number;
  deliberate_ns: number;
  device_ns: number;
}

export interface LiveAttainment {
  part: string;
  kept?: boolean;
  kept_percent?: number;
  missed_lately_s: number;
  best_effort: boolean;
}

export interface LiveVm {
  vm: string;
  device: string;
  background: boolean;
  objective: Objective;
  attainment?: LiveAttainment[];
  unenforced: boolean;
  failed_disks: number;
  clients: number;
  pending: number;
  in_flight: number;
  errors: number;
  requests_per_s?: number;
  reads_per_s?: number;
  writes_per_s?: number;
  read_bytes_per_s?: number;
  write_bytes_per_s?: number;
  p50_ns?: number;
  p99_ns?: number;
  account?: Account;
}

export interface LiveDevice {
  name: string;
  backing: string;
  policy: string;
  depth: number;
  in_flight: number;
  queued: number;
  oldest_io_ns?: number;
  ios_per_s?: number;
  errors: number;
  fits?: boolean;
}

export interface Live {
  at_ms: number;
  devices: LiveDevice[];
  vms: LiveVm[];
}

export interface Budget {
  judged_s: number;
  missed_s: number;
  burn_rate?: number;
}

export interface Attainment {
  part: string;
  kept?: boolean;
  kept_percent?: number;
  detail: string;
  best_effort: boolean;
  last_5_minutes: Budget;
  last_hour: Budget;
  last_day: Budget;
}

export interface Part {
  part: string;
  value: string;
  enforced_by: string[];
}

export interface Vm {
  name: string;
  device: string;
  policy: string;
  background: boolean;
  objective: Objective;
  feasible?: string;
  schedule?: { entry: number | null; held?: string; next: { at: string } | null };
  not_enforced: Part[];
  disks: { export: string; size_bytes: number; failed: string | null; fault_rules: number }[];
  clients: number;
  max_connections: number;
  attainment?: Attainment[];
  notes?: string[];
}

export interface Policy {
  name: string;
  controller: string | null;
  regulator: string;
  dispatcher: string;
  enforces: string[];
  params: { name: string; value: string }[];
}

export interface Device {
  name: string;
  backing: string;
  policy: Policy;
  depth: number;
  max_io_bytes: number;
  adapted_depth?: number;
  depth_reason?: string;
  errors: number;
  drift?: { ratio: number; parted?: string; seconds_judged: number };
  learnt_cap?: { iops?: number; bytes_per_s?: number };
  feasibility?: { fits: boolean; depth_bound: number; learnt: boolean };
  vms: string[];
  not_enforced: ({ vm: string } & Part)[];
}

export interface Interval {
  from_ms: number;
  to_ms: number;
  observed_ms: number;
  values: Record<string, number>;
  latency?: { p50_ns: number; p99_ns: number; p999_ns: number; max_ns: number };
  behind?: { vm: string; waited_us: number }[];
}

export interface History {
  from_ms: number;
  to_ms: number;
  step_s: number;
  intervals: Interval[];
  recorded: { from_ms: number; to_ms: number }[];
  /** Upper bounds of latencies in nanoseconds with the number of requests, over the whole span. */
  buckets?: [number, number][];
}

export interface Times {
  count: number;
  mean_ns: number;
  buckets?: [number, number][];
}

export interface VmStats {
  vm: string;
  device: string;
  latency: Times;
  queue_time: { read: Times; write: Times };
  service_time: { read: Times; write: Times };
  waited_behind: { vm: string; ns: number }[];
}

export interface Transfer {
  size_bytes: number;
  moved_bytes: number;
  bytes_per_s?: number;
  due: string;
  due_in_s: number;
  early_s?: number;
  class: string;
  enforced: boolean;
  given_up: boolean;
  forecast: string;
  notes?: string[];
}

export interface VmTransfers {
  vm: string;
  device: string;
  job?: Transfer;
  last?: { size_bytes: number; outcome: string; said: string };
  ended: { met: number; missed: number; cancelled: number };
}

export interface Recordings {
  directory?: string;
  max_bytes: number;
  bytes: number;
  on_storage_of?: string[];
  devices: {
    device: string;
    on: boolean;
    since?: string;
    problem?: string;
    requests: number;
    dropped: number;
    files: number;
    bytes: number;
    from?: string;
    until?: string;
  }[];
}

export interface WhatIfFigures {
  iops: number;
  bytes_per_s: number;
  p50_ns: number;
  p99_ns: number;
  p999_ns: number;
  promises?: { part: string; kept: boolean | null; detail: string }[];
}

export interface WhatIfAnswer {
  device: string;
  duration_s: number;
  gaps: number;
  missing_requests: number;
  /** VMs whose disks have limits, which are not replayed; daemons of before do not say. */
  disk_limits?: string[];
  own_policy: string;
  reproduction: { throughput_error: number; latency_error: number };
  vms: {
    name: string;
    closed: boolean;
    evidence: string;
    inferred: boolean;
    recorded: WhatIfFigures;
    policies: (WhatIfFigures & { policy: string; own: boolean })[];
  }[];
}

export interface WhatIfRun {
  number: number;
  state: "running" | "done" | "failed" | "cancelled";
  request: { device: string };
  progress: number;
  step?: string;
  problem?: Problem;
  answer?: WhatIfAnswer;
}

export interface WhatIf {
  bounds: { cpu_s: number; time_s: number; memory_bytes: number; recording_bytes: number };
  models: string[];
  run?: WhatIfRun;
}

export interface Health {
  status: "ok" | "degraded" | "failing";
  problems: string[];
}

export interface Problem {
  what: string;
  where: string;
  allowed: string | null;
}

/** Error answer of the API, or a request that did not get through (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problems: Problem[],
    /** The request would have changed something. */
    readonly isChange = false,
  ) {
    super(problems[0]?.what ?? `status ${status}`);
  }
}

const TOKEN = "tidegate-token";

/** Returns the token of this tab; it ends with the tab. */
export function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(secret: string | null): void {
  if (secret) sessionStorage.setItem(TOKEN, secret);
  else sessionStorage.removeItem(TOKEN);
}

/** Event of `window`: the daemon refused the token of this tab, which was forgotten. */
export const TOKEN_REFUSED = "tokenrefused";

/** Forgets a token that the daemon refused, unless another one was entered meanwhile. */
function forgetToken(refused: string): void {
  if (token() !== refused) return;
  setToken(null);
  dispatchEvent(new Event(TOKEN_REFUSED));
}

/** Returns whether a body is an answer: `/healthz` tells the state of health by 503, with its usual body. */
export function isAnswer(url: string, status: number, body: unknown): boolean {
  if (status >= 200 && status < 300) return true;
  return url === "/healthz" && status === 503 && typeof (body as Partial<Health> | null)?.status === "string";
}

/** Joins the segments of a path; names come from users, so each is escaped. */
export function path(...segments: string[]): string {
  return `/v1/${segments.map(encodeURIComponent).join("/")}`;
}

interface Options {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  secret?: string;
}

/**
 * Sends a request and returns the answer; `secret` replaces the token of this tab. Reading needs no
 * token: if that of the tab is refused, it is forgotten, and the request repeated without.
 */
export async function ask<T>(url: string, options: Options = {}): Promise<T> {
  const isChange = (options.method ?? "GET") !== "GET";
  const headers: Record<string, string> = {};
  const secret = options.secret ?? token();
  // Not in `Authorization`, where the browser has the password of a proxy in front.
  if (secret) headers["X-Tidegate-Token"] = secret;
  let answer: Response;
  try {
    answer = await fetch(url, {
      method: options.method ?? "GET",
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, [{ what: "the daemon does not answer", where: "", allowed: null }], isChange);
  }
  const body = await answer.json().catch(() => null);
  if (isAnswer(url, answer.status, body)) return body as T;
  if (answer.status === 401 && secret && !isChange && options.secret === undefined) {
    forgetToken(secret);
    // Without a token, or with the one that was entered meanwhile.
    if (token() !== secret) return ask(url, options);
  }
  const problems = body?.error ? [body.error, ...(body.also ?? [])] : [];
  throw new ApiError(answer.status, problems, isChange);
}
