// Charts: uPlot with the page's colours, and the steps of a cumulative distribution.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, minute, stamp } from "./format";
import { useThemeTurn } from "./hooks";
import { POINTS, type Points } from "./rates";

export interface Series {
  label: string;
  /** Custom property with the colour. */
  colour: string;
  values: (number | null)[];
  /** Filled down to the axis or the series below. */
  fill?: boolean;
  dash?: boolean;
}

export interface ChartProps {
  title: string;
  /** Times in seconds since 1970, or figures where `xIs` says so. */
  x: number[];
  series: Series[];
  format: (value: number) => string;
  /** Series are drawn on top of each other; the legend has their own figures. */
  stacked?: boolean;
  /** Range of the times in seconds since 1970; without one, as the points have it. */
  xRange?: [number, number];
  /** Logarithmic axis of figures instead of times. */
  xIs?: { format: (value: number) => string };
  /** Fixed range of the values. */
  range?: [number, number];
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Sums from the last series on, so that each is drawn behind those that follow. */
function stack(series: Series[]): (number | null)[][] {
  const sums: (number | null)[][] = [];
  let below: (number | null)[] = [];
  for (const { values } of [...series].reverse()) {
    below = values.map((value, i) => (value === null ? null : value + (below[i] ?? 0)));
    sums.unshift(below);
  }
  return sums;
}

function axis(): Partial<uPlot.Axis> {
  return {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
}

/** Places of values without a neighbour, which a line does not show. */
export function lone(values: ArrayLike<number | null | undefined>): number[] {
  const places = Array.from(values, (_, i) => i);
  return places.filter((i) => values[i] != null && values[i - 1] == null && values[i + 1] == null);
}

function options(latest: { current: ChartProps }, width: number): uPlot.Options {
  const props = latest.current;
  const { format, xIs } = props;
  const label = (_: uPlot, value: number | null) => (value === null ? "–" : format(value));
  return {
    width,
    height: 190,
    cursor: { drag: { x: false, y: false }, y: false },
    legend: { live: true },
    scales: {
      x: xIs ? { time: false, distr: 3 } : { time: true, range: (_, min, max) => latest.current.xRange ?? [min, max] },
      y: { range: props.range ? () => props.range! : (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
    },
    axes: [
      {
        ...axis(),
        space: 64,
        values: (_, all) => {
          // Whole minutes need no seconds.
          const time = all.every((v) => v % 60 === 0) ? minute : clock;
          return all.map((v) => (v === null ? "" : xIs ? xIs.format(v) : time(v * 1000)));
        },
      },
      { ...axis(), size: 74, values: (_, all) => all.map((v) => format(v)) },
    ],
    series: [
      { value: (_, v) => (v === null ? "–" : xIs ? xIs.format(v) : stamp(v * 1000)) },
      ...props.series.map((series) => ({
        label: series.label,
        stroke: colour(series.colour),
        width: props.stacked ? 1 : 1.5,
        points: { show: false, size: 4, fill: colour(series.colour), filter: (plot: uPlot, at: number) => lone(plot.data[at]!) },
        spanGaps: false,
        ...(series.fill ? { fill: `${colour(series.colour)}${props.stacked ? "" : "33"}` } : {}),
        ...(series.dash ? { dash: [6, 4] } : {}),
        value: props.stacked
          ? (_: uPlot, __: number, at: number, i: number | null) => {
              const value = i === null ? null : props.series[at - 1]?.values[i];
              return value === null || value === undefined ? "–" : format(value);
            }
          : label,
      })),
    ],
  };
}

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const turn = useThemeTurn();
  const { x, series, stacked } = props;
  const values = stacked ? stack(series) : series.map((it) => it.values);
  const data = [x, ...values] as uPlot.AlignedData;
  // Another set of series needs another plot; other figures do not.
  const kind = `${turn} ${props.title} ${series.map((it) => it.label).join()}`;
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(options(latest, element.clientWidth || 300), data, element);
    plot.current = made;
    const resized = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height: 190 });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [kind]);
  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    // The legend of a stack reads the figures of the series.
    if (stacked) {
      made.series.forEach((it, at) => {
        if (at === 0) return;
        it.value = (_: uPlot, __: number, ___: number, i: number | null) => {
          const value = i === null ? null : latest.current.series[at - 1]?.values[i];
          return value === null || value === undefined ? "–" : latest.current.format(value);
        };
      });
    }
    made.setData(data);
  });
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={place} />
    </figure>
  );
}

/** Path of points that end at the right edge; seconds without a value are gaps. */
export function sparkPath(points: Points, width: number, height: number): string {
  const max = Math.max(...points.map((it) => it ?? 0), 1e-9);
  const step = width / (POINTS - 1);
  const from = width - (points.length - 1) * step;
  let isDrawn = false;
  return points
    .map((value, i) => {
      if (value === null) {
        isDrawn = false;
        return "";
      }
      const [x, y] = [(from + i * step).toFixed(1), (height - 2 - (value / max) * (height - 4)).toFixed(1)];
      // A second between two gaps is a dot, by the round ends of the line.
      const isLone = !isDrawn && (points[i + 1] ?? null) === null;
      const path = `${isDrawn ? "L" : "M"}${x} ${y}${isLone ? "h0" : ""}`;
      isDrawn = true;
      return path;
    })
    .join("");
}

/** Line of the last points, without axes. */
export function Sparkline({ points, label }: { points: Points; label: string }) {
  const [width, height] = [120, 22];
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={label}>
      {points.length > 0 && <path d={sparkPath(points, width, height)} />}
    </svg>
  );
}

/** Points of a cumulative distribution in per cent, from buckets of upper bound and count. */
export function distribution(buckets: [number, number][]): [number, number][] {
  const total = buckets.reduce((sum, [, n]) => sum + n, 0);
  let seen = 0;
  return buckets.map(([upper, n]) => {
    seen += n;
    return [upper, (100 * seen) / total];
  });
}

/** Distributions on the union of their bounds: each keeps its height up to its next bound. */
export function aligned(all: [number, number][][]): { x: number[]; ys: (number | null)[][] } {
  const x = [...new Set(all.flatMap((points) => points.map(([at]) => at)))].sort((a, b) => a - b);
  const ys = all.map((points) => {
    let next = 0;
    let height: number | null = points.length ? 0 : null;
    return x.map((at) => {
      while (next < points.length && points[next]![0] <= at) height = points[next++]![1];
      return height;
    });
  });
  return { x, ys };
}
