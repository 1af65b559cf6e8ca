// One VM: what it is promised and gets, its time series, and who it waited for.

import { memo } from "preact/compat";
import { useRef, useState } from "preact/hooks";
import type { Attainment, History, Live, Times, Vm, VmStats } from "./api";
import { path } from "./api";
import { aligned, Chart, distribution } from "./chart";
import { bandwidth, digits, duration, percent, size, whole } from "./format";
import { to, usePolled } from "./hooks";
import { ObjectiveSection } from "./objective";
import { classes, value } from "./intervals";
import { requests } from "./rates";
import { Anew, Failure, Figure, Mark, Shares, TableFrame } from "./parts";
import { SeriesSection, useHistory } from "./series";
import { type Base, follow, since } from "./since";

function Now({ live, name }: { live: Live; name: string }) {
  const vm = live.vms.find((it) => it.vm === name);
  if (!vm) return null;
  const bytes = vm.read_bytes_per_s === undefined ? undefined : vm.read_bytes_per_s + (vm.write_bytes_per_s ?? 0);
  return (
    <dl class="figures now">
      <Figure name="Requests a second">{digits(requests(vm) ?? NaN)}</Figure>
      <Figure name="Bandwidth">{bandwidth(bytes)}</Figure>
      <Figure name="p50">{duration(vm.p50_ns)}</Figure>
      <Figure name="p99">{duration(vm.p99_ns)}</Figure>
      <Figure name="Waiting">{vm.pending}</Figure>
      <Figure name="In flight">{vm.in_flight}</Figure>
      <Figure name="Connections">{vm.clients}</Figure>
      {vm.errors > 0 && (
        <Figure name="Failed">
          <span class="mark bad">{digits(vm.errors)}</span>
        </Figure>
      )}
    </dl>
  );
}

function AttainmentTable({ parts }: { parts: Attainment[] }) {
  return (
    <TableFrame label="Promises by part">
      <table class="wide">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col">Promise</th>
            <th scope="col" class="number">Kept</th>
            <th scope="col">In words</th>
            <th scope="col" class="number">Missed, 5 min</th>
            <th scope="col" class="number">1 h</th>
            <th scope="col" class="number">24 h</th>
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={part.part}>
              <th scope="row">
                {part.part}
                {part.best_effort && <span class="muted"> best effort</span>}
              </th>
              <td>
                <Mark kept={part.kept} />
              </td>
              <td class="number">{percent(part.kept_percent)}</td>
              <td>{part.detail}</td>
              <td class="number">{part.last_5_minutes.missed_s} s</td>
              <td class="number">{part.last_hour.missed_s} s</td>
              <td class="number">{part.last_day.missed_s} s</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  );
}

/** Where the time of the requests of a span went, and behind which VMs they waited. */
function Where({ history }: { history: History }) {
  const behind = new Map<string, number>();
  for (const interval of history.intervals) {
    for (const { vm, waited_us } of interval.behind ?? []) behind.set(vm, (behind.get(vm) ?? 0) + waited_us);
  }
  const sum = (counter: string) => history.intervals.reduce((all, it) => all + value(it, counter), 0);
  const waited = [...behind].sort((a, b) => b[1] - a[1]).slice(0, 8);
  const most = waited[0]?.[1] ?? 1;
  const micros = (us: number) => duration(us * 1000);
  return (
    <div class="columns">
      <section>
        <h2>Where its time went</h2>
        <Shares format={micros} parts={classes(history.intervals).map((it) => [it.label, sum(it.counter), it.colour])} />
      </section>
      <section>
        <h2>Who it waited for</h2>
        {waited.length === 0 ? (
          <p class="muted">No other VM.</p>
        ) : (
          <table class="waited">
            <tbody>
              {waited.map(([vm, us]) => (
                <tr key={vm}>
                  <th scope="row">
                    <a href={to("vm", vm)}>{vm}</a>
                  </th>
                  <td class="meter">
                    <span style={{ width: `${(100 * us) / most}%` }} />
                  </td>
                  <td class="number">{micros(us)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </section>
    </div>
  );
}

function sumOf(a: [number, number][], b: [number, number][]): [number, number][] {
  const all = new Map(a);
  for (const [at, n] of b) all.set(at, (all.get(at) ?? 0) + n);
  return [...all].sort((x, y) => x[0] - y[0]);
}

/** Requests of the distributions. */
const MODES = [
  ["span", "Span of the charts"],
  ["start", "Since the start"],
  ["page", "Since this page is open"],
] as const;
type Mode = (typeof MODES)[number][0];

const CDF = "Share of requests that took at most so long";

/** Distribution of latency over the span of the charts, as the history has it. */
function OfSpan({ name, history }: { name: string; history: History | null }) {
  const buckets = history?.buckets ?? [];
  const points = distribution(buckets);
  if (!history || points.length === 0) return <p class="muted">No requests in the last {name}.</p>;
  const known = buckets.reduce((sum, [, n]) => sum + n, 0);
  const requests = ["reads", "writes", "others"].reduce(
    (sum, counter) => sum + history.intervals.reduce((all, it) => all + value(it, counter), 0),
    0,
  );
  return (
    <>
      <Chart
        title={CDF}
        x={points.map(([at]) => at)}
        xIs={{ format: (ns) => duration(ns) }}
        range={[0, 100]}
        format={(v) => percent(v)}
        series={[{ label: "latency", colour: "--series-3", values: points.map(([, share]) => share) }]}
      />
      <p class="muted">
        Requests of the last {name}, in windows of 10 s. The history has no distributions of wait and device time.
        {known < requests && ` ${whole(requests - known)} of ${whole(requests)} requests are left out: their windows have no distribution.`}
      </p>
    </>
  );
}

/** Distributions of latency, and of wait and device time: of the span, since the start, or since this page shows it. */
const Distributions = memo(function Distributions(props: { name: string; span: string; history: History | null }) {
  const { name } = props;
  const { value, error } = usePolled<{ vms: VmStats[] }>(`/v1/stats?buckets=true&vm=${encodeURIComponent(name)}`, 15_000);
  const [mode, setMode] = useState<Mode>("span");
  const isRecent = mode === "page";
  const followed = useRef<Base | null>(null);
  const now = value?.vms.find((it) => it.vm === name);
  if (now) followed.current = follow(followed.current, now, Date.now());
  const base = isRecent ? followed.current?.first : null;
  const pairs: [string, string, Times[], (Times | undefined)[]][] = now
    ? [
        ["latency", "--series-3", [now.latency], [base?.latency]],
        [
          "wait",
          "--series-2",
          [now.queue_time.read, now.queue_time.write],
          [base?.queue_time.read, base?.queue_time.write],
        ],
        [
          "device",
          "--series-1",
          [now.service_time.read, now.service_time.write],
          [base?.service_time.read, base?.service_time.write],
        ],
      ]
    : [];
  const all = pairs.map(([, , times, before]) =>
    distribution(times.map((it, i) => since(it, before[i])).reduce(sumOf, [])),
  );
  const { x, ys } = aligned(all);
  return (
    <section>
      <div class="titled">
        <h2>Distribution of times</h2>
        <div class="picker" role="group" aria-label="Requests of the distribution">
          {MODES.map(([it, label]) => (
            <button key={it} type="button" aria-pressed={it === mode} onClick={() => setMode(it)}>
              {label}
            </button>
          ))}
        </div>
      </div>
      <Failure error={error} />
      {isRecent && <Anew atMs={followed.current?.anewMs ?? null} />}
      {mode === "span" ? (
        <OfSpan name={props.span} history={props.history} />
      ) : x.length > 1 ? (
        <Chart
          title={CDF}
          x={x}
          xIs={{ format: (ns) => duration(ns) }}
          range={[0, 100]}
          format={(v) => percent(v)}
          series={pairs.map(([label, colour], i) => ({ label, colour, values: ys[i]! }))}
        />
      ) : (
        <p class="muted">No requests yet; the figures are renewed every 15 s.</p>
      )}
    </section>
  );
});

/** A bound such as `30 ms` in nanoseconds. */
function nanoseconds(text: string | null): number | undefined {
  const parts = text?.match(/^([0-9.]+) *(ns|us|µs|ms|s)$/);
  if (!parts) return undefined;
  const by = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 }[parts[2] as "ns" | "us" | "ms" | "s"];
  return Number(parts[1]) * by;
}

export function VmPage({ name, live }: { name: string; live: Live | null }) {
  const { value: vm, error, refresh } = usePolled<Vm>(path("vms", name), 2000);
  const span = useHistory(path("vms", name, "history"));
  if (!vm) {
    return (
      <>
        <h1>{name}</h1>
        {error ? <Failure error={error} /> : <p class="muted">Loading …</p>}
      </>
    );
  }
  return (
    <>
      <h1>
        {vm.name}{" "}
        <span class="muted">
          on <a href={to("device", vm.device)}>{vm.device}</a> under {vm.policy}
        </span>
      </h1>
      <Failure error={error} />
      {live && <Now live={live} name={name} />}
      <ObjectiveSection vm={vm} refresh={refresh} />
      {vm.attainment && vm.attainment.length > 0 && (
        <section>
          <h2>Kept or missed</h2>
          <AttainmentTable parts={vm.attainment} />
        </section>
      )}
      <SeriesSection span={span} bound={nanoseconds(vm.objective.latency)} />
      {span.coarse && <Where history={span.coarse} />}
      <Distributions key={name} name={name} span={span.name} history={span.coarse} />
      <section>
        <h2>Disks</h2>
        <ul class="disks">
          {vm.disks.map((disk) => (
            <li key={disk.export}>
              <strong>{disk.export}</strong> {size(disk.size_bytes)}
              {disk.failed && <span class="mark bad"> {disk.failed}</span>}
              {disk.fault_rules > 0 && <span class="mark warn"> ! {disk.fault_rules} fault rules</span>}
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}
