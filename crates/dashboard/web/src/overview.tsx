// Devices, and all VMs in a table that can be sorted and filtered.

import { memo } from "preact/compat";
import { useRef, useState } from "preact/hooks";
import type { Live, LiveDevice, LiveVm } from "./api";
import { Sparkline } from "./chart";
import { bandwidth, digits, duration, objective } from "./format";
import { to } from "./hooks";
import { tally, urgency } from "./promises";
import { Figure, Mark, Marks, TableFrame } from "./parts";
import { type Points, type Rates, requests } from "./rates";
import { useIsSeen } from "./seen";

/** Rows that are drawn at first, and added at a time. */
const ROWS = 200;

/** Time after which rows off the screen are drawn again: searches of the page and screen readers find them there. */
const UNSEEN_MS = 10_000;

/** Points of a VM that has none yet. */
const NONE: Points = [];

const bytes = (vm: LiveVm) => (vm.read_bytes_per_s ?? 0) + (vm.write_bytes_per_s ?? 0);

interface Column {
  name: string;
  key: (vm: LiveVm) => number | string;
  /** Class of its width; without one it has what the others leave. */
  width?: "name" | "narrow" | "medium" | "broad";
  /** Figures begin with the largest. */
  isNumber?: boolean;
}

const COLUMNS: Column[] = [
  { name: "VM", key: (vm) => vm.vm, width: "name" },
  { name: "Device", key: (vm) => vm.device, width: "medium" },
  { name: "Objective", key: (vm) => objective(vm.objective) },
  { name: "Promises", key: urgency, width: "broad" },
  { name: "IOPS", key: (vm) => requests(vm) ?? -1, width: "narrow", isNumber: true },
  { name: "Bandwidth", key: bytes, width: "medium", isNumber: true },
  { name: "p50", key: (vm) => vm.p50_ns ?? -1, width: "narrow", isNumber: true },
  { name: "p99", key: (vm) => vm.p99_ns ?? -1, width: "narrow", isNumber: true },
  { name: "Waiting", key: (vm) => vm.pending, width: "narrow", isNumber: true },
  { name: "In flight", key: (vm) => vm.in_flight, width: "narrow", isNumber: true },
];

/** Figures of a VM, as of an event. */
interface Figures {
  vm: LiveVm;
  points: Points;
  atMs: number;
}

const Cells = memo(
  function Cells({ vm, points }: Figures) {
    return (
      <>
        <th scope="row">
          <a href={to("vm", vm.vm)}>{vm.vm}</a>
          {vm.failed_disks > 0 && <span class="mark bad"> disk failed</span>}
          {vm.background && <span class="muted"> background</span>}
        </th>
        <td>
          <a href={to("device", vm.device)}>{vm.device}</a>
        </td>
        <td class="objective">
          {objective(vm.objective)}
          {vm.unenforced && <span class="mark warn"> ! not all enforced</span>}
        </td>
        <td>
          <Marks parts={vm.attainment} />
        </td>
        <td class="number">{digits(requests(vm) ?? NaN)}</td>
        <td class="number">{bandwidth(vm.read_bytes_per_s === undefined ? undefined : bytes(vm))}</td>
        <td class="number">{duration(vm.p50_ns)}</td>
        <td class="number">{duration(vm.p99_ns)}</td>
        <td class="number">{vm.pending}</td>
        <td class="number">{vm.in_flight}</td>
        <td>
          <Sparkline points={points} label={`requests a second of ${vm.vm} in the last minute`} />
        </td>
      </>
    );
  },
  // The cells of a VM that stays idle, or as it is, are not drawn again.
  (before, after) =>
    before.points === after.points &&
    (before.vm === after.vm || JSON.stringify(before.vm) === JSON.stringify(after.vm)),
);

/** Row of a VM. Off the screen it is seldom drawn: with many VMs most rows are there. */
function Row(figures: Figures) {
  const row = useRef<HTMLTableRowElement>(null);
  const isSeen = useIsSeen(row);
  const drawn = useRef(figures);
  // A clock that was set back is no reason to wait.
  const ageMs = Math.abs(figures.atMs - drawn.current.atMs);
  if (isSeen || ageMs >= UNSEEN_MS) drawn.current = figures;
  return (
    <tr ref={row}>
      <Cells {...drawn.current} />
    </tr>
  );
}

function Card({ device, vms }: { device: LiveDevice; vms: LiveVm[] }) {
  const own = vms.filter((vm) => vm.device === device.name);
  const { judged, missed, now } = tally(own);
  return (
    <li class="card">
      <h3>
        <a href={to("device", device.name)}>{device.name}</a> <span class="muted">{device.backing}</span>
      </h3>
      <dl class="figures">
        <Figure name="Policy">{device.policy}</Figure>
        <Figure name="I/Os a second">{digits(device.ios_per_s ?? NaN)}</Figure>
        <Figure name="In flight">
          {device.in_flight} of {device.depth}
        </Figure>
        <Figure name="Waiting">{device.queued}</Figure>
        <Figure name="Bandwidth">{bandwidth(own.reduce((sum, vm) => sum + bytes(vm), 0))}</Figure>
        <Figure name="VMs">{own.length}</Figure>
      </dl>
      <p>
        {now > 0 && (
          <span class="mark bad">
            <span aria-hidden="true">▼</span> missed lately: {now} {now === 1 ? "VM" : "VMs"} in the last 5 min{" "}
          </span>
        )}
        {judged > 0 && (
          <Mark kept={missed === 0}>{missed > 0 && `: ${missed} of ${judged} VMs with promises`}</Mark>
        )}
        {judged > 0 && device.fits === false && <br />}
        {device.fits === false && <span class="mark warn">! promises do not fit the device</span>}
        {device.errors > 0 && <span class="mark bad"> {device.errors} I/Os failed</span>}
      </p>
    </li>
  );
}

function sorted(vms: LiveVm[], column: Column, isUp: boolean): LiveVm[] {
  const order = isUp ? 1 : -1;
  return [...vms].sort((a, b) => {
    const [x, y] = [column.key(a), column.key(b)];
    if (x === y) return a.vm < b.vm ? -1 : 1;
    return (x < y ? -1 : 1) * order;
  });
}

function VmTable({ live, rates }: { live: Live; rates: Rates }) {
  const [by, setBy] = useState({ column: 0, isUp: true });
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(ROWS);
  const input = useRef<HTMLInputElement>(null);
  const wanted = filter.trim().toLowerCase();
  const fits = (vm: LiveVm) =>
    [vm.vm, vm.device, objective(vm.objective)].some((text) => text.toLowerCase().includes(wanted));
  const vms = sorted(live.vms.filter(fits), COLUMNS[by.column]!, by.isUp);
  const sort = (column: number) => {
    const isSame = by.column === column;
    setBy({ column, isUp: isSame ? !by.isUp : !COLUMNS[column]!.isNumber });
  };
  return (
    <section>
      <div class="titled">
        <h2>VMs</h2>
        <label>
          <span class="visually-hidden">Filter VMs</span>
          <input
            id="filter"
            ref={input}
            type="search"
            placeholder="Filter ( / )"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </label>
        <span class="muted">
          {vms.length} of {live.vms.length}
        </span>
      </div>
      <TableFrame label="VMs">
        <table class="vms">
          <colgroup>
            {COLUMNS.map(({ name, width }) => (
              <col key={name} class={width} />
            ))}
            <col class="line" />
          </colgroup>
          <thead>
            <tr>
              {COLUMNS.map((column, i) => (
                <th
                  key={column.name}
                  scope="col"
                  class={column.isNumber ? "number" : ""}
                  aria-sort={by.column !== i ? "none" : by.isUp ? "ascending" : "descending"}
                >
                  <button type="button" class="sort" onClick={() => sort(i)}>
                    {column.name}
                    <span aria-hidden="true">{by.column !== i ? "" : by.isUp ? " ▲" : " ▼"}</span>
                  </button>
                </th>
              ))}
              <th scope="col">Last minute</th>
            </tr>
          </thead>
          <tbody>
            {vms.slice(0, most).map((vm) => (
              <Row key={vm.vm} vm={vm} points={rates.of.get(vm.vm) ?? NONE} atMs={live.at_ms} />
            ))}
          </tbody>
        </table>
      </TableFrame>
      {vms.length > most && (
        <p>
          <button type="button" onClick={() => setMost(most + ROWS)}>
            Show {Math.min(ROWS, vms.length - most)} more
          </button>{" "}
          <span class="muted">
            The first {most} of {vms.length} are shown, as they are sorted.
          </span>
        </p>
      )}
      {vms.length === 0 && <p class="muted">No VM has “{filter}” in its name, device or objective.</p>}
    </section>
  );
}

export function Overview({ live, rates }: { live: Live; rates: Rates }) {
  return (
    <>
      <h1 class="visually-hidden">Overview</h1>
      <section>
        <h2>Devices</h2>
        <ul class="cards">
          {live.devices.map((device) => (
            <Card key={device.name} device={device} vms={live.vms} />
          ))}
        </ul>
      </section>
      <VmTable live={live} rates={rates} />
    </>
  );
}
