// Deadline transfers with their forecasts.

import { useState } from "preact/hooks";
import { path, type Live, type VmTransfers } from "./api";
import { type Change, ChangeDialog } from "./change";
import { bandwidth, percent, size, span } from "./format";
import { to, usePolled } from "./hooks";
import { Headings, Failure, TableFrame } from "./parts";

function StartDialog({ vms, close, done }: { vms: string[]; close: () => void; done: (now: VmTransfers) => void }) {
  const [values, setValues] = useState({ vm: "", size: "", deadline: "" });
  const [force, setForce] = useState(false);
  const { vm, size, deadline } = values;
  // Without a VM the form is not sent.
  const url = vm ? path("vms", vm, "job") : "/v1/vms/…/job";
  const change: Change = { method: "PUT", url: `${url}${force ? "?force=true" : ""}`, body: { size, deadline } };
  return (
    <ChangeDialog title="Start a deadline transfer" change={change} verb="Start" close={close} done={done}>
      <div class="fields">
        <label>
          VM
          <select required value={vm} onChange={(event) => setValues({ ...values, vm: event.currentTarget.value })}>
            <option value="">choose a VM</option>
            {vms.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          Size
          <input
            required
            placeholder="2 GiB"
            value={size}
            onInput={(event) => setValues({ ...values, size: event.currentTarget.value })}
          />
        </label>
        <label>
          Deadline from now
          <input
            required
            placeholder="60 s"
            value={deadline}
            onInput={(event) => setValues({ ...values, deadline: event.currentTarget.value })}
          />
        </label>
      </div>
      <label class="check">
        <input type="checkbox" checked={force} onChange={() => setForce(!force)} /> even if it does not fit the device
      </label>
    </ChangeDialog>
  );
}

/** A sign with the word for the good or the bad outcome. */
function Outcome({ good, words: [yes, no] }: { good: boolean; words: [string, string] }) {
  return (
    <span class={`mark ${good ? "good" : "bad"}`}>
      <span aria-hidden="true">{good ? "✓" : "✗"}</span> {good ? yes : no}
    </span>
  );
}

function Row({ it, cancel }: { it: VmTransfers; cancel: (vm: string) => void }) {
  const job = it.job;
  const done = job && job.size_bytes > 0 ? (100 * job.moved_bytes) / job.size_bytes : 0;
  return (
    <tr>
      <th scope="row">
        <a href={to("vm", it.vm)}>{it.vm}</a>
      </th>
      {job ? (
        <>
          <td>
            <progress max={100} value={done} aria-label={`transfer of ${it.vm}`} /> {percent(done)} of {size(job.size_bytes)}
          </td>
          <td class="number">{bandwidth(job.bytes_per_s)}</td>
          <td class="number">{job.due_in_s >= 0 ? span(job.due_in_s) : `${span(job.due_in_s)} ago`}</td>
          <td>
            {job.early_s !== undefined && <Outcome good={job.early_s >= 0} words={["in time", "late"]} />} {job.forecast}
            {job.given_up && <span class="mark bad"> given up</span>}
            {!job.enforced && <span class="mark warn"> ! not enforced</span>}
            {job.notes?.map((note) => <p key={note} class="muted">{note}</p>)}
          </td>
          <td>{job.class}</td>
        </>
      ) : (
        <td colSpan={5} class="muted">
          none runs
        </td>
      )}
      <td>
        {it.last && (
          <>
            {it.last.outcome !== "cancelled" && <Outcome good={it.last.outcome === "met"} words={["met", "missed"]} />}{" "}
            <span class="muted">{it.last.said}</span>
          </>
        )}
      </td>
      <td class="number">
        {it.ended.met} / {it.ended.missed} / {it.ended.cancelled}
      </td>
      <td>
        {job && (
          <button type="button" onClick={() => cancel(it.vm)}>
            Cancel<span aria-hidden="true"> …</span>
            <span class="visually-hidden"> the transfer of {it.vm}</span>
          </button>
        )}
      </td>
    </tr>
  );
}

/** Zone of the daemon, which its times of day are in, as far as a deadline names it. */
function daemonZone(transfers: VmTransfers[]): string {
  const named = transfers.flatMap((it) => it.job?.due.match(/\[([^\]]+)\]$/)?.[1] ?? []);
  return named[0] ? `, ${named[0]}` : "'s time zone";
}

export function TransfersPage({ live }: { live: Live | null }) {
  const { value, error, refresh } = usePolled<VmTransfers[]>(path("jobs"), 2000);
  const [isOpen, setOpen] = useState(false);
  const [said, setSaid] = useState<string | null>(null);
  const [cancelled, setCancelled] = useState<string | null>(null);
  const names = ["VM", "Progress", "Rate", "Due in", "Forecast", "Class", "Last one", "Met / missed / cancelled", "Action"];
  return (
    <>
      <div class="titled">
        <h1>Deadline transfers</h1>
        <button type="button" onClick={() => setOpen(true)}>
          Start …
        </button>
      </div>
      <Failure error={error} />
      {said && (
        <div class="notice good" role="status">
          {said}
        </div>
      )}
      {value && value.length > 0 && (
        <p class="muted">Times of day in forecasts and results are those of the daemon{daemonZone(value)}.</p>
      )}
      {value?.length === 0 && <p class="muted">No VM has a transfer, or had one since the daemon started.</p>}
      {value && value.length > 0 && (
        <TableFrame label="Deadline transfers">
          <table class="wide">
            <Headings names={names} />
            <tbody>
              {value.map((it) => (
                <Row key={it.vm} it={it} cancel={setCancelled} />
              ))}
            </tbody>
          </table>
        </TableFrame>
      )}
      {cancelled && (
        <ChangeDialog<VmTransfers>
          title={`Cancel the transfer of ${cancelled}`}
          change={{ method: "DELETE", url: path("vms", cancelled, "job") }}
          verb="Cancel the transfer"
          close={() => setCancelled(null)}
          done={(now) => {
            setSaid(`${now.vm}: ${now.last?.said ?? "cancelled"}`);
            setCancelled(null);
            refresh();
          }}
        />
      )}
      {isOpen && (
        <StartDialog
          vms={live?.vms.filter((vm) => !vm.background).map((vm) => vm.vm) ?? []}
          close={() => setOpen(false)}
          done={(now) => {
            setSaid(`In force now: ${now.vm}, ${now.job?.forecast ?? "done"}`);
            setOpen(false);
            refresh();
          }}
        />
      )}
    </>
  );
}
