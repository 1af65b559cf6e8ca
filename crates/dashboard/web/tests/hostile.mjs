// Answers whose names and texts try to become elements, scripts and links.

export const NAME = `"><img src=x onerror="window.taken=1"><script>window.taken=1</script>`;
export const LINK = `javascript:window.taken=1//\u202e\u0007'&amp;${"{{7*7}}"}`;

const objective = {
  reservation: NAME,
  limit: { total: NAME, read: null, write: LINK, burst: null },
  target: null,
  weight: 7,
  group: { name: NAME, weight: 1 },
  latency: NAME,
  priority: LINK,
};
const budget = { judged_s: 1, missed_s: 1 };
const attainment = {
  part: NAME,
  kept: false,
  kept_percent: 50,
  detail: NAME,
  best_effort: true,
  missed_lately_s: 1,
  last_5_minutes: budget,
  last_hour: budget,
  last_day: budget,
};
const times = { count: 3, mean_ns: 5000, buckets: [[2000, 1], [9000, 2]] };
const part = { part: NAME, value: LINK, enforced_by: [NAME] };

const interval = (from) => ({
  from_ms: from,
  to_ms: from + 1000,
  observed_ms: 1000,
  values: { reads: 5, device_us: 900, queued_us: 100, latency_missed_s: 1 },
  latency: { p50_ns: 1000, p99_ns: 2000, p999_ns: 3000, max_ns: 4000 },
  behind: [{ vm: NAME, waited_us: 7 }, { vm: LINK, waited_us: 3 }],
});

const policy = {
  name: NAME,
  controller: NAME,
  regulator: NAME,
  dispatcher: LINK,
  enforces: [NAME],
  params: [{ name: NAME, value: LINK }],
};
const device = {
  name: NAME,
  backing: NAME,
  policy,
  depth: 32,
  max_io_bytes: 1048576,
  depth_reason: NAME,
  errors: 1,
  drift: { ratio: 2, parted: NAME, seconds_judged: 3 },
  vms: [NAME, LINK],
  not_enforced: [{ vm: NAME, ...part }],
};
const vm = {
  name: NAME,
  device: LINK,
  policy: NAME,
  background: true,
  objective,
  feasible: NAME,
  schedule: { entry: 1, held: NAME, next: { at: NAME } },
  not_enforced: [part],
  disks: [{ export: NAME, size_bytes: 1, failed: NAME, fault_rules: 1 }],
  clients: 1,
  max_connections: 1,
  attainment: [attainment],
};

/** Answers by path; a path that is not here gets an error with hostile texts. */
export function answer(url) {
  const path = new URL(url).pathname;
  const now = Date.now();
  if (path === "/healthz") return { status: "degraded", problems: [NAME, LINK] };
  if (path === "/v1/recordings") {
    const it = { device: NAME, on: true, problem: NAME, requests: 1, dropped: 1, files: 1, bytes: 1 };
    const devices = [{ ...it, from: NAME, until: LINK }];
    return { directory: NAME, max_bytes: 1, bytes: 1, on_storage_of: [NAME], devices };
  }
  if (path === "/v1/whatif") {
    const figures = { iops: 1, bytes_per_s: 2, p50_ns: 3, p99_ns: 4, p999_ns: 5 };
    const promises = [{ part: NAME, kept: false, detail: NAME }];
    const policies = [{ policy: NAME, own: true, promises, ...figures }];
    const vms = [{ name: NAME, closed: true, evidence: NAME, inferred: true, recorded: figures, policies }];
    const reproduction = { throughput_error: 1, latency_error: 1 };
    const missing = { gaps: 1, missing_requests: 1, disk_limits: [NAME] };
    const answer = { device: NAME, duration_s: 1, ...missing, own_policy: NAME, reproduction, vms };
    const problem = { what: NAME, where: LINK, allowed: NAME };
    const run = { number: 1, state: "running", request: { device: NAME }, progress: 0.5, step: NAME, problem, answer };
    const bounds = { cpu_s: 1, time_s: 1, memory_bytes: 1, recording_bytes: 1 };
    return { bounds, models: [NAME, LINK], run };
  }
  if (path === "/v1/policies") return [{ name: NAME, summary: NAME, enforces: [LINK] }];
  if (path === "/v1/jobs") {
    const job = { size_bytes: 2, moved_bytes: 1, due: NAME, due_in_s: 1, early_s: -1, class: NAME };
    const said = { forecast: NAME, enforced: false, given_up: true, notes: [NAME] };
    const last = { size_bytes: 1, outcome: NAME, said: LINK };
    const ended = { met: 1, missed: 2, cancelled: 3 };
    return [{ vm: NAME, device: NAME, job: { ...job, ...said }, last, ended }];
  }
  if (path === "/v1/stats") {
    const both = { read: times, write: times };
    const waited_behind = [{ vm: LINK, ns: 5 }];
    const it = { device: NAME, latency: times, queue_time: both, service_time: both, waited_behind };
    return { vms: [{ vm: NAME, ...it }] };
  }
  if (path.endsWith("/history")) {
    const intervals = [interval(now - 3000), interval(now - 2000)];
    return { from_ms: now - 10_000, to_ms: now, step_s: 1, intervals, recorded: [] };
  }
  if (path.startsWith("/v1/devices/")) return device;
  if (path.startsWith("/v1/vms/")) return vm;
  return null;
}

export function sample() {
  const live = { vm: NAME, device: NAME, background: true, objective, attainment: [attainment] };
  const rates = { requests_per_s: 6, reads_per_s: 5, writes_per_s: 1, read_bytes_per_s: 7, write_bytes_per_s: 8 };
  const counts = { unenforced: true, failed_disks: 1, clients: 1, pending: 1, in_flight: 1, errors: 1 };
  const of = { name: NAME, backing: NAME, policy: NAME, depth: 1, in_flight: 1, queued: 1 };
  const data = {
    at_ms: Date.now(),
    devices: [{ ...of, errors: 1, fits: false }],
    vms: [{ ...live, ...rates, ...counts }, { ...live, ...counts, vm: LINK }],
  };
  return `event: sample\ndata: ${JSON.stringify(data)}\n\nevent: problem\ndata: ${JSON.stringify({ error: { what: NAME } })}\n\n`;
}
