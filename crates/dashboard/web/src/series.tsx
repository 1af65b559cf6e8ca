// Time series of a VM or a device from the history.

import { useState } from "preact/hooks";
import type { History, Interval } from "./api";
import { Chart, type Series } from "./chart";
import { bandwidth, digits, duration } from "./format";
import { type Polled, usePolled } from "./hooks";
import { Failure } from "./parts";

/** Spans that can be looked at, with the step and how often the figures are asked for anew. */
const SPANS = [
  { name: "5 min", from: "-5m", step: "1s", everyMs: 2000 },
  { name: "15 min", from: "-15m", step: "10s", everyMs: 10_000 },
  { name: "1 h", from: "-1h", step: "10s", everyMs: 10_000 },
  { name: "6 h", from: "-6h", step: "60s", everyMs: 60_000 },
  { name: "24 h", from: "-24h", step: "300s", everyMs: 60_000 },
] as const;

/** Classes of the time of requests: counter, name, colour. */
export const CLASSES: [string, string, string][] = [
  ["regulated_us", "own limit", "--series-4"],
  ["queued_us", "behind others", "--series-2"],
  ["merged_wait_us", "merged", "--series-5"],
  ["deliberate_us", "anticipation", "--series-6"],
  ["device_us", "device", "--series-1"],
];

export interface Span {
  picked: number;
  pick: (index: number) => void;
  polled: Polled<History>;
  /** History of the span with steps of at least 10 s, which also say who was waited for. */
  coarse: History | null;
}

/** Asks for the history at `url` over a span that the reader picks. */
export function useHistory(url: string): Span {
  const [picked, pick] = useState(0);
  const span = SPANS[picked]!;
  const polled = usePolled<History>(`${url}?from=${span.from}&step=${span.step}`, span.everyMs);
  const isFine = span.step === "1s";
  const coarse = usePolled<History>(isFine ? `${url}?from=${span.from}&step=10s` : null, 10_000);
  return { picked, pick, polled, coarse: isFine ? coarse.value : polled.value };
}

export function SpanPicker({ span }: { span: Span }) {
  return (
    <div class="picker" role="group" aria-label="Span of the charts">
      {SPANS.map(({ name }, i) => (
        <button key={name} type="button" aria-pressed={i === span.picked} onClick={() => span.pick(i)}>
          {name}
        </button>
      ))}
    </div>
  );
}

/** Intervals at equal distances; those in which nothing happened are null. */
function evenly(history: History): { x: number[]; at: (Interval | null)[] } {
  const step = history.step_s * 1000;
  const first = Math.floor(history.from_ms / step);
  const last = Math.max(first, Math.ceil(history.to_ms / step) - 1);
  const x: number[] = [];
  const at: (Interval | null)[] = [];
  for (let n = first; n <= last; n++) {
    x.push((n * step) / 1000);
    at.push(null);
  }
  for (const interval of history.intervals) {
    // Points of 1 s are as the VM was visited: each belongs to the second of its middle.
    const middle = (interval.from_ms + interval.to_ms) / 2;
    const index = Math.floor(middle / step) - first;
    if (index >= 0 && index < at.length) at[index] = interval;
  }
  return { x, at };
}

const value = (it: Interval, name: string) => it.values[name] ?? 0;
const perSecond = (it: Interval, n: number) => (it.observed_ms > 0 ? (n * 1000) / it.observed_ms : 0);

interface ChartsProps {
  history: History;
  /** Bound on latencies in nanoseconds, drawn beside them. */
  bound?: number | undefined;
  isDevice?: boolean;
}

export function Charts({ history, bound, isDevice }: ChartsProps) {
  const { x, at } = evenly(history);
  const line = (label: string, colour: string, of: (it: Interval) => number | null): Series => ({
    label,
    colour,
    values: at.map((it) => (it ? of(it) : null)),
  });
  const rate = (label: string, colour: string, name: string) =>
    line(label, colour, (it) => perSecond(it, value(it, name)));
  const latency = [
    line("p50", "--series-1", (it) => it.latency?.p50_ns ?? null),
    line("p99", "--series-2", (it) => it.latency?.p99_ns ?? null),
    line("p99.9", "--series-3", (it) => it.latency?.p999_ns ?? null),
  ];
  if (bound) latency.push({ label: "bound", colour: "--bad", dash: true, values: x.map(() => bound) });
  const classes = CLASSES.filter(([name]) => at.some((it) => it && value(it, name) > 0));
  const missed = at.map((it) => {
    if (!it) return null;
    const names = ["reservation", "latency", "target", "limit"];
    return names.reduce((sum, name) => sum + value(it, `${name}_missed_s`), 0);
  });
  return (
    <div class="charts">
      <Chart title="Requests a second" x={x} format={digits} series={[rate("reads", "--series-1", "reads"), rate("writes", "--series-2", "writes")]} />
      <Chart title="Bandwidth" x={x} format={bandwidth} series={[rate("read", "--series-1", "read_bytes"), rate("write", "--series-2", "write_bytes")]} />
      <Chart title="Latency" x={x} format={(ns) => duration(ns)} series={latency} />
      <Chart
        title="Where the time went: requests in each state, on average"
        x={x}
        stacked
        format={digits}
        series={classes.map(([name, label, colour]) => ({
          ...line(label, colour, (it) => perSecond(it, value(it, name)) / 1e6),
          fill: true,
        }))}
      />
      {isDevice ? (
        <>
          <Chart
            title="Time in use"
            x={x}
            range={[0, 105]}
            format={(v) => `${digits(v)} %`}
            series={[
              { ...line("busy", "--series-1", (it) => perSecond(it, value(it, "busy_us")) / 1e4), fill: true },
              line("idle on purpose", "--series-6", (it) => perSecond(it, value(it, "idle_on_purpose_us")) / 1e4),
            ]}
          />
          <Chart
            title="Queue depth"
            x={x}
            format={digits}
            series={[
              line("in force", "--series-4", (it) => value(it, "depth")),
              line("in flight", "--series-1", (it) => value(it, "in_flight")),
              line("waiting", "--series-2", (it) => value(it, "pending")),
            ]}
          />
        </>
      ) : (
        missed.some((n) => n) && (
          <Chart
            title="Promises missed, in seconds"
            x={x}
            format={digits}
            series={[{ label: "missed", colour: "--bad", values: missed, fill: true }]}
          />
        )
      )}
    </div>
  );
}

export function SeriesSection(props: { span: Span; bound?: number | undefined; isDevice?: boolean }) {
  const { value: history, error } = props.span.polled;
  return (
    <section>
      <div class="titled">
        <h2>Over time</h2>
        <SpanPicker span={props.span} />
      </div>
      <Failure error={error} />
      {history && <Charts history={history} bound={props.bound} isDevice={props.isDevice ?? false} />}
      {history?.intervals.length === 0 && <p class="muted">Idle in all of this time.</p>}
    </section>
  );
}
