// What-if runs: a recorded span replayed under other policies, which are shown side by side.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import {
  ApiError,
  type Live,
  path,
  type Recordings,
  type WhatIf,
  type WhatIfAnswer,
  type WhatIfFigures,
  type WhatIfRun,
} from "./api";
import { type Change, ChangeDialog, RequestLine, useSending } from "./change";
import { bandwidth, digits, duration, percent, size } from "./format";
import { to, usePolled } from "./hooks";
import { Failure, Mark, TableFrame } from "./parts";

const WHAT_IF = path("whatif");

/** Spans to replay; null: everything that is recorded. */
const SPANS: [string, string | null][] = [
  ["the last 2 minutes", "-2m"],
  ["the last 10 minutes", "-10m"],
  ["the last hour", "-1h"],
  ["all that is recorded", null],
  ["from … to …", ""],
];

/** Parts of an objective that can be changed, as paths into it. */
const PARTS = [
  ["reservation", "200 IOPS"],
  ["latency", "10 ms"],
  ["limit.total", "20 MB/s"],
  ["limit.read", "20 MB/s"],
  ["limit.write", "20 MB/s"],
  ["target", "20 MB/s"],
  ["weight", "50"],
] as const;

/** Error above which differences between policies may be those of the replay. */
const ERROR_MAX = 0.1;

interface Choice {
  device: string;
  span: number;
  from: string;
  to: string;
  policies: string[];
  vm: string;
  part: string;
  value: string;
  model: string;
  gaps: boolean;
}

/** Body of the request that starts a run. */
function requestOf(choice: Choice): Record<string, unknown> {
  const [, last] = SPANS[choice.span]!;
  const request: Record<string, unknown> = { device: choice.device };
  if (last) request["from"] = last;
  if (last === "" && choice.from) request["from"] = choice.from;
  if (last === "" && choice.to) request["to"] = choice.to;
  if (choice.policies.length > 0) request["policies"] = choice.policies;
  const text = choice.value.trim();
  if (choice.vm && text) {
    const value = text === "none" ? null : choice.part === "weight" && /^\d+$/.test(text) ? Number(text) : text;
    const [table, key] = choice.part.split(".");
    request["objectives"] = { [choice.vm]: { [table!]: key ? { [key]: value } : value } };
  }
  if (choice.model) request["model"] = choice.model;
  if (choice.gaps) request["allow_gaps"] = true;
  return request;
}

function Form(props: { devices: string[]; models: string[]; live: Live | null; busy: boolean; started: () => void }) {
  const { devices, live } = props;
  const { value: policies } = usePolled<{ name: string }[]>(path("policies"), 3_600_000);
  const [choice, setChoice] = useState<Choice>({
    device: devices[0]!,
    span: 1,
    from: "",
    to: "",
    policies: ["fifo", "mclock", "slo"],
    vm: "",
    part: "latency",
    value: "",
    model: "",
    gaps: false,
  });
  const { error, busy, send } = useSending<WhatIf>(props.started);
  const set = (change: Partial<Choice>) => setChoice({ ...choice, ...change });
  const vms = live?.vms.filter((vm) => vm.device === choice.device).map((vm) => vm.vm) ?? [];
  const change: Change = { method: "POST", url: WHAT_IF, body: requestOf(choice) };
  const submit = (event: Event) => {
    event.preventDefault();
    void send(change);
  };
  const turn = (name: string) => {
    const rest = choice.policies.filter((it) => it !== name);
    set({ policies: rest.length === choice.policies.length ? [...rest, name] : rest });
  };
  const select = (key: "device" | "vm" | "part" | "model", label: string, options: [string, string][]) => (
    <label>
      {label}
      <select value={choice[key]} onChange={(event) => set({ [key]: event.currentTarget.value })}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
  const text = (key: "from" | "to" | "value", label: string, hint: string) => (
    <label>
      {label}
      <input
        autocomplete="off"
        placeholder={hint}
        value={choice[key]}
        onInput={(event) => set({ [key]: event.currentTarget.value })}
      />
    </label>
  );
  const same = (names: string[]): [string, string][] => names.map((name) => [name, name]);
  return (
    <form class="panel" onSubmit={submit}>
      <div class="fields">
        {select("device", "Device", same(devices))}
        <label>
          Span
          <select value={choice.span} onChange={(event) => set({ span: Number(event.currentTarget.value) })}>
            {SPANS.map(([name], i) => (
              <option key={name} value={i}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {SPANS[choice.span]![1] === "" && text("from", "From", "14:02 or -15m")}
        {SPANS[choice.span]![1] === "" && text("to", "To", "14:10 or now")}
        {select("model", "Device model", [["", "as recorded"], ...same(props.models)])}
      </div>
      <fieldset>
        <legend>Policies to try, beside the one in force</legend>
        <div class="checks">
          {policies?.map(({ name }) => (
            <label key={name} class="check">
              <input type="checkbox" checked={choice.policies.includes(name)} onChange={() => turn(name)} /> {name}
            </label>
          ))}
        </div>
      </fieldset>
      <fieldset>
        <legend>Another objective, if you like</legend>
        <div class="fields">
          {select("vm", "VM", [["", "none"], ...same(vms)])}
          {choice.vm && select("part", "Part", same(PARTS.map(([part]) => part)))}
          {choice.vm && text("value", "Value, or none", PARTS.find(([part]) => part === choice.part)?.[1] ?? "")}
        </div>
      </fieldset>
      <label class="check">
        <input type="checkbox" checked={choice.gaps} onChange={() => set({ gaps: !choice.gaps })} /> even if requests of
        the span are missing
      </label>
      <RequestLine change={change} />
      <Failure error={error} />
      <div class="buttons">
        <button type="submit" class="primary" disabled={props.busy || busy}>
          Replay
        </button>
      </div>
    </form>
  );
}

type Cell = (it: WhatIfFigures) => ComponentChildren;

const ROWS: [string, Cell][] = [
  ["requests a second", (it) => digits(it.iops)],
  ["bandwidth", (it) => bandwidth(it.bytes_per_s)],
  ["p50", (it) => duration(it.p50_ns || null)],
  ["p99", (it) => duration(it.p99_ns || null)],
  ["p99.9", (it) => duration(it.p999_ns || null)],
  [
    "promises",
    (it) =>
      it.promises?.length
        ? it.promises.map((promise) => (
            <span key={promise.part} class="nowrap promised" title={promise.detail}>
              {promise.part} <Mark kept={promise.kept ?? undefined} />
            </span>
          ))
        : "–",
  ],
];

/** Recorded figures and those of each policy, a column each. */
function SideBySide({ answer }: { answer: WhatIfAnswer }) {
  const columns = answer.vms[0]?.policies ?? [];
  return (
    <TableFrame label="Policies side by side">
      <table class="wide beside">
        <thead>
          <tr>
            <th scope="col">VM</th>
            <th scope="col">Figure</th>
            <th scope="col" class="number">
              recorded
            </th>
            {columns.map((it, i) => (
              <th key={i} scope="col" class="number">
                {it.policy}
                {it.own && <span class="muted"> as recorded</span>}
              </th>
            ))}
          </tr>
        </thead>
        {answer.vms.map((vm) => (
          <tbody key={vm.name}>
            {ROWS.map(([name, cell], row) => (
              <tr key={name}>
                {row === 0 && (
                  <th scope="rowgroup" rowSpan={ROWS.length}>
                    {vm.name}
                    {vm.inferred && <span class="mark warn"> *</span>}
                    <small class="muted">
                      replayed {vm.closed ? "when answered" : "at its times"}: {vm.evidence}
                    </small>
                  </th>
                )}
                <th scope="row">{name}</th>
                <td class="number">{name === "promises" ? "" : cell(vm.recorded)}</td>
                {vm.policies.map((it, i) => (
                  <td key={i} class="number">
                    {cell(it)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </TableFrame>
  );
}

function Results({ answer }: { answer: WhatIfAnswer }) {
  const { throughput_error: throughput, latency_error: latency } = answer.reproduction;
  const isClose = Math.max(throughput, latency) <= ERROR_MAX;
  return (
    <>
      <div class={`notice ${isClose ? "good" : "bad"}`}>
        <p>
          Check: replayed under its own policy ({answer.own_policy}) on {answer.device}, the recording of{" "}
          {digits(answer.duration_s)} s comes out with an error of {percent(100 * throughput)} in throughput and{" "}
          {percent(100 * latency)} in latency, as a median over all VMs.
          {!isClose && " Differences between policies that are not clearly larger mean nothing."}
        </p>
        {answer.gaps > 0 && (
          <p>
            The recording has {answer.gaps} gaps; {answer.missing_requests} requests are known to be missing.
          </p>
        )}
        {answer.disk_limits && answer.disk_limits.length > 0 && (
          <p>Disks of {answer.disk_limits.join(", ")} have limits, which are not replayed: a recording does not have them.</p>
        )}
      </div>
      <SideBySide answer={answer} />
      {answer.vms.some((vm) => vm.inferred) && (
        <p>
          <span class="mark warn">*</span> depends on what was inferred about the VM’s think times: another policy may
          have got other requests from it.
        </p>
      )}
      <p>
        <a href="/v1/whatif/report" target="_blank" rel="noopener">
          Each VM over time, as a report
        </a>
      </p>
    </>
  );
}

function Run({ run, refresh }: { run: WhatIfRun; refresh: () => void }) {
  const [isAsked, ask] = useState(false);
  const { request, problem } = run;
  return (
    <section>
      <h2>
        Run {run.number} <span class="muted">of {request.device}</span>
      </h2>
      <p class="muted">
        <code>{JSON.stringify(request)}</code>
      </p>
      {run.state === "running" && (
        <p role="status">
          <progress max={1} value={run.progress} aria-label="replays that are done" /> {percent(100 * run.progress)}{" "}
          {run.step || "reading the recording"}{" "}
          <button type="button" onClick={() => ask(true)}>
            Cancel the run<span aria-hidden="true"> …</span>
          </button>
        </p>
      )}
      {isAsked && run.state === "running" && (
        <ChangeDialog<WhatIf>
          title={`Cancel run ${run.number}`}
          change={{ method: "DELETE", url: WHAT_IF }}
          verb="Cancel the run"
          close={() => ask(false)}
          done={refresh}
        />
      )}
      {run.state === "cancelled" && <p role="status">Cancelled.</p>}
      {problem && <Failure error={new ApiError(500, [problem])} />}
      {run.answer && <Results answer={run.answer} />}
    </section>
  );
}

export function WhatIfPage({ live }: { live: Live | null }) {
  const [isFast, setFast] = useState(false);
  const { value, error, refresh } = usePolled<WhatIf>(WHAT_IF, isFast ? 500 : 5000);
  const { value: recordings, error: unread } = usePolled<Recordings>(path("recordings"), 5000);
  const isRunning = value?.run?.state === "running";
  if (isRunning !== isFast && value) setFast(isRunning);
  const devices = recordings?.devices.filter((it) => it.files > 0 || it.on).map((it) => it.device) ?? [];
  return (
    <>
      <h1>What if</h1>
      <p class="muted">
        The requests of a recorded span, replayed in the simulator under other policies or objectives. Nothing is
        applied.
        {value &&
          ` One run at a time, beside the daemon at idle priority: at most ${value.bounds.cpu_s} s of CPU time, ` +
            `${size(value.bounds.memory_bytes)} of memory and ${size(value.bounds.recording_bytes)} of recording.`}
      </p>
      <Failure error={error ?? unread} />
      {recordings && devices.length === 0 && (
        <div class="notice">
          <p>
            No device is recorded yet. Switch a recording on at <a href={to("recordings")}>Recordings</a>, or by{" "}
            <code>tidegate record on</code>, and come back after the minutes that you want to ask about.
          </p>
        </div>
      )}
      {value && devices.length > 0 && (
        <Form devices={devices} models={value.models} live={live} busy={isRunning} started={refresh} />
      )}
      {value?.run && <Run key={value.run.number} run={value.run} refresh={refresh} />}
    </>
  );
}
