// One device: its series, who delayed whom on it, and the policy in force.

import { useRef, useState } from "preact/hooks";
import { type Device, type Live, path, type Policy, type VmStats } from "./api";
import { type Change, ChangeDialog } from "./change";
import { bandwidth, digits, duration, size } from "./format";
import { to, usePolled } from "./hooks";
import { Anew, SincePicker, Failure, Figure, TableFrame } from "./parts";
import { SeriesSection, useHistory } from "./series";
import { anewMs, type Bases, followAll, waits } from "./since";

/** Most VMs of a matrix: those that were delayed longest. */
const MATRIX_MAX = 16;

type Cells = Map<string, Map<string, number>>;

const total = (row: Map<string, number>) => [...row.values()].reduce((sum, ns) => sum + ns, 0);

/** Matrix of waits: the row's VM waited for the column's. */
function Matrix({ all }: { all: Cells }) {
  const delayed = [...all].filter(([, row]) => row.size > 0).sort((a, b) => total(b[1]) - total(a[1]));
  const rows = delayed.slice(0, MATRIX_MAX);
  const columns = new Map<string, number>();
  for (const [, row] of rows) for (const [vm, ns] of row) columns.set(vm, (columns.get(vm) ?? 0) + ns);
  const culprits = [...columns].sort((a, b) => b[1] - a[1]).map(([vm]) => vm).slice(0, MATRIX_MAX);
  const most = Math.max(...rows.flatMap(([, row]) => [...row.values()]), 1);
  if (rows.length === 0) return <p class="muted">No VM waited for another one.</p>;
  return (
    <>
      <TableFrame label="Who delayed whom">
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">waited ↓ for →</th>
              {culprits.map((vm) => (
                <th key={vm} scope="col">
                  {vm}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([vm, row]) => (
              <tr key={vm}>
                <th scope="row">
                  <a href={to("vm", vm)}>{vm}</a>
                </th>
                {culprits.map((other) => {
                  const ns = row.get(other) ?? 0;
                  return (
                    <td key={other} class="number" style={{ "--heat": String(ns ? 0.06 + (0.3 * ns) / most : 0) }}>
                      {ns ? duration(ns) : ""}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </TableFrame>
      {delayed.length > rows.length && (
        <p class="muted">
          The {rows.length} of {delayed.length} VMs that waited longest.
        </p>
      )}
    </>
  );
}

function MatrixSection({ device }: { device: string }) {
  const { value, error } = usePolled<{ vms: VmStats[] }>(`/v1/stats?device=${encodeURIComponent(device)}`, 5000);
  const [isRecent, setRecent] = useState(false);
  const own = value?.vms.filter((vm) => vm.device === device) ?? null;
  const followed = useRef<{ answer: unknown; bases: Bases } | null>(null);
  if (own && followed.current?.answer !== value) {
    followed.current = { answer: value, bases: followAll(followed.current?.bases ?? null, own, Date.now()) };
  }
  const bases = isRecent ? (followed.current?.bases ?? null) : null;
  return (
    <section>
      <div class="titled">
        <h2>Who delayed whom</h2>
        <SincePicker label="Time of the matrix" isRecent={isRecent} pick={setRecent} />
      </div>
      <Failure error={error} />
      {bases && <Anew atMs={anewMs(bases)} />}
      {own && <Matrix all={waits(own, bases)} />}
    </section>
  );
}

interface PolicyInfo {
  name: string;
  summary: string;
  enforces: string[];
}

function PolicyDialog(props: { device: Device; close: () => void; done: (now: Device) => void }) {
  const { value: policies, error: unread } = usePolled<PolicyInfo[]>(path("policies"), 3_600_000);
  const [name, setName] = useState(props.device.policy.name);
  const picked = policies?.find((it) => it.name === name);
  const change: Change = { method: "PUT", url: path("devices", props.device.name, "policy"), body: { name } };
  return (
    <ChangeDialog
      title={`Change the policy of ${props.device.name}`}
      change={picked ? change : null}
      verb="Put in force"
      close={props.close}
      done={props.done}
      unread={unread}
    >
      <label>
        Policy
        <select value={name} onChange={(event) => setName(event.currentTarget.value)}>
          {policies?.map((it) => (
            <option key={it.name} value={it.name}>
              {it.name}
            </option>
          ))}
        </select>
      </label>
      {picked && (
        <>
          <p>{picked.summary}</p>
          <p class="muted">enforces: {picked.enforces.join(", ") || "nothing"}; parameters at their defaults</p>
        </>
      )}
    </ChangeDialog>
  );
}

function params(policy: Policy): string {
  return policy.params.map((it) => `${it.name} = ${it.value}`).join(", ");
}

function PolicySection({ device, refresh }: { device: Device; refresh: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const [done, setDone] = useState<Device | null>(null);
  const { policy } = device;
  return (
    <section>
      <div class="titled">
        <h2>Policy</h2>
        <button type="button" onClick={() => setOpen(true)}>
          Change …
        </button>
      </div>
      {done && (
        <div class="notice good" role="status">
          <p>
            In force now: <strong>{done.policy.name}</strong> {params(done.policy)}
          </p>
          {done.not_enforced.map((part) => (
            <p key={`${part.vm} ${part.part}`}>
              {part.part} {part.value} of {part.vm} is not enforced
            </p>
          ))}
          <button type="button" onClick={() => setDone(null)}>
            Close
          </button>
        </div>
      )}
      <p class="promise">
        {policy.name} <span class="muted">{params(policy)}</span>
      </p>
      <p class="muted">
        {[policy.controller, policy.regulator, policy.dispatcher].filter(Boolean).join(" + ")}; enforces{" "}
        {policy.enforces.join(", ") || "nothing"}
      </p>
      {device.not_enforced.map((part) => (
        <p key={`${part.vm} ${part.part}`} class="mark warn">
          ! {part.part} {part.value} of {part.vm} is not enforced; {part.enforced_by.join(", ")} would
        </p>
      ))}
      {isOpen && (
        <PolicyDialog
          device={device}
          close={() => setOpen(false)}
          done={(now) => {
            setDone(now);
            setOpen(false);
            refresh();
          }}
        />
      )}
    </section>
  );
}

function Now({ device, live }: { device: Device; live: Live | null }) {
  const now = live?.devices.find((it) => it.name === device.name);
  const cap = device.learnt_cap;
  return (
    <dl class="figures now">
      {now && (
        <>
          <Figure name="I/Os a second">{digits(now.ios_per_s ?? NaN)}</Figure>
          <Figure name="In flight">{now.in_flight}</Figure>
          <Figure name="Waiting">{now.queued}</Figure>
          <Figure name="Oldest I/O">{duration(now.oldest_io_ns)}</Figure>
        </>
      )}
      <Figure name="Queue depth">
        {device.adapted_depth ?? device.depth} of {device.depth}
        {device.depth_reason && <small class="muted"> {device.depth_reason}</small>}
      </Figure>
      <Figure name="Largest I/O">{size(device.max_io_bytes)}</Figure>
      {device.feasibility && (
        <Figure name="Promises">
          {device.feasibility.fits ? "fit" : <span class="mark bad">do not fit</span>}
          <small class="muted"> by {device.feasibility.learnt ? "learnt costs" : "the profile"}</small>
        </Figure>
      )}
      {device.drift && device.drift.seconds_judged > 0 && (
        <Figure name="Against its profile">
          {digits(device.drift.ratio)} × {device.drift.parted ?? "as measured"}
        </Figure>
      )}
      {cap && (
        <Figure name="Learnt cap">
          {[cap.iops && `${digits(cap.iops)} IOPS`, cap.bytes_per_s && bandwidth(cap.bytes_per_s)]
            .filter(Boolean)
            .join(", ")}
        </Figure>
      )}
      {device.errors > 0 && (
        <Figure name="Failed I/Os">
          <span class="mark bad">{digits(device.errors)}</span>
        </Figure>
      )}
    </dl>
  );
}

export function DevicePage({ name, live }: { name: string; live: Live | null }) {
  const { value: device, error, refresh } = usePolled<Device>(path("devices", name), 2000);
  const span = useHistory(path("devices", name, "history"));
  if (!device) {
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
        {device.name} <span class="muted">{device.backing}</span>
      </h1>
      <Failure error={error} />
      <Now device={device} live={live} />
      <PolicySection device={device} refresh={refresh} />
      <SeriesSection span={span} isDevice />
      <MatrixSection key={name} device={name} />
      <section>
        <h2>VMs</h2>
        <ul class="links">
          {device.vms.map((vm) => (
            <li key={vm}>
              <a href={to("vm", vm)}>{vm}</a>
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}
