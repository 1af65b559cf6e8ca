// Time series of a VM or a device from the history.

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import type { History, Interval } from "./api";
import { Chart, type Series } from "./chart";
import { bandwidth, digits, duration, span, zone } from "./format";
import { type Polled, usePolled } from "./hooks";
import { classes, emptiness, perSecond, pieces, value } from "./intervals";
import { Failure } from "./parts";

/** Spans that can be looked at, with the step and how often the figures are asked for anew. */
const SPANS = [
  { name: "5 min", from: "-5m", step: "1s", everyMs: 2000 },
  { name: "15 min", from: "-15m", step: "10s", everyMs: 10_000 },
  { name: "1 h", from: "-1h", step: "10s", everyMs: 10_000 },
  { name: "6 h", from: "-6h", step: "60s", everyMs: 60_000 },
  { name: "24 h", from: "-24h", step: "300s", everyMs: 60_000 },
] as const;

export interface Span {
  name: string;
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
  const isFine = span.step === "1s";
  const asked = (step: string, more = "") => `${url}?from=${span.from}&step=${step}${more}`;
  // Points of 1 s have no distributions.
  const polled = usePolled<History>(isFine ? asked(span.step) : asked(span.step, "&buckets=true"), span.everyMs);
  const coarse = usePolled<History>(isFine ? asked("10s", "&buckets=true") : null, 10_000);
  return { name: span.name, picked, pick, polled, coarse: isFine ? coarse.value : polled.value };
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

interface ChartsProps {
  history: History;
  /** Bound on latencies in nanoseconds, drawn beside them. */
  bound?: number | undefined;
  isDevice?: boolean;
}

/** Charts of a history, drawn anew only with another one: the page around them is drawn with each event. */
const Charts = memo(function Charts({ history, bound, isDevice }: ChartsProps) {
  const { x, at } = pieces(history);
  const xRange: [number, number] = [history.from_ms / 1000, history.to_ms / 1000];
  const line = (label: string, colour: string, of: (it: Interval) => number | null, idle: number | null = 0): Series => ({
    label,
    colour,
    values: at.map((it) => (it === "unknown" ? null : it === "idle" ? idle : of(it))),
  });
  const rate = (label: string, colour: string, name: string, by = 1) =>
    line(label, colour, (it) => perSecond(history, it, value(it, name)) / by);
  const requests = [rate("reads", "--series-1", "reads"), rate("writes", "--series-2", "writes")];
  // Flushes, discards and zeroes: most VMs have few of them, or none.
  if (history.intervals.some((it) => value(it, "others") > 0)) requests.push(rate("others", "--series-5", "others"));
  const latency = [
    line("p50", "--series-1", (it) => it.latency?.p50_ns ?? null, null),
    line("p99", "--series-2", (it) => it.latency?.p99_ns ?? null, null),
    line("p99.9", "--series-3", (it) => it.latency?.p999_ns ?? null, null),
  ];
  if (bound) latency.push({ label: "bound", colour: "--bad", dash: true, values: x.map(() => bound) });
  const { intervals } = history;
  const present = classes(intervals).filter(({ counter }) => intervals.some((it) => value(it, counter) > 0));
  const missedOf = (it: Interval) =>
    ["reservation", "latency", "target", "limit"].reduce((sum, part) => sum + value(it, `${part}_missed_s`), 0);
  return (
    <div class="charts">
      <Chart title="Requests a second" xRange={xRange} x={x} format={digits} series={requests} />
      <Chart title="Bandwidth" xRange={xRange} x={x} format={bandwidth} series={[rate("read", "--series-1", "read_bytes"), rate("write", "--series-2", "write_bytes")]} />
      <Chart title="Latency" xRange={xRange} x={x} format={(ns) => duration(ns)} series={latency} />
      <Chart
        title="Where the time went: requests in each state, on average"
        x={x}
        xRange={xRange}
        stacked
        format={digits}
        series={present.map(({ counter, label, colour }) => ({ ...rate(label, colour, counter, 1e6), fill: true }))}
      />
      {isDevice ? (
        <>
          <Chart
            title="Time in use"
            x={x}
            xRange={xRange}
            range={[0, 105]}
            format={(v) => `${digits(v)} %`}
            series={[
              { ...rate("busy", "--series-1", "busy_us", 1e4), fill: true },
              rate("idle on purpose", "--series-6", "idle_on_purpose_us", 1e4),
            ]}
          />
          <Chart
            title="Queue depth"
            x={x}
            xRange={xRange}
            format={digits}
            series={[
              line("in force", "--series-4", (it) => value(it, "depth"), null),
              line("in flight", "--series-1", (it) => value(it, "in_flight")),
              line("waiting", "--series-2", (it) => value(it, "pending")),
            ]}
          />
        </>
      ) : (
        intervals.some((it) => missedOf(it) > 0) && (
          <Chart
            title={`Promises missed, in seconds of each ${span(history.step_s)}`}
            x={x}
            xRange={xRange}
            format={digits}
            series={[{ ...line("missed", "--bad", missedOf), fill: true }]}
          />
        )
      )}
    </div>
  );
});

export function SeriesSection(props: { span: Span; bound?: number | undefined; isDevice?: boolean }) {
  const { value: history, error } = props.span.polled;
  return (
    <section>
      <div class="titled">
        <h2>Over time</h2>
        <span class="muted">times of {zone(Date.now())}</span>
        <SpanPicker span={props.span} />
      </div>
      <Failure error={error} />
      {history && <Charts history={history} bound={props.bound} isDevice={props.isDevice ?? false} />}
      {history && emptiness(history) && <p class="muted">{emptiness(history)}</p>}
    </section>
  );
}
