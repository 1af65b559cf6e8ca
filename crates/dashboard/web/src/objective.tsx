// The objective of a VM, and the form that changes it.

import { useState } from "preact/hooks";
import { type Objective, path, type Vm } from "./api";
import { type Change, ChangeDialog } from "./change";
import { objective as words } from "./format";

interface Field {
  key: string;
  label: string;
  hint: string;
  of: (it: Objective) => string;
}

const FIELDS: Field[] = [
  { key: "reservation", label: "Reservation", hint: "120 IOPS @ 16 KiB, 20 MB/s", of: (it) => it.reservation ?? "" },
  { key: "latency", label: "Latency bound", hint: "30 ms", of: (it) => it.latency ?? "" },
  { key: "limit.total", label: "Limit", hint: "500 IOPS, 60 MB/s", of: (it) => it.limit?.total ?? "" },
  { key: "limit.read", label: "Limit of reads", hint: "60 MB/s", of: (it) => it.limit?.read ?? "" },
  { key: "limit.write", label: "Limit of writes", hint: "15 MB/s", of: (it) => it.limit?.write ?? "" },
  { key: "target", label: "Target", hint: "a rate that is held precisely", of: (it) => it.target ?? "" },
  { key: "weight", label: "Weight", hint: "1 to 10000", of: (it) => String(it.weight) },
  { key: "priority", label: "Priority", hint: "best-effort 4", of: (it) => it.priority },
];

/** Merge patch of the fields that differ from the objective in force. */
function patchOf(values: Record<string, string>, was: Objective): Record<string, unknown> {
  const patch: Record<string, unknown> = {};
  const limit: Record<string, string | null> = {};
  for (const field of FIELDS) {
    const text = (values[field.key] ?? "").trim();
    if (text === field.of(was)) continue;
    const [table, key] = field.key.split(".");
    if (key) limit[key] = text || null;
    else if (table === "weight" && /^\d+$/.test(text)) patch["weight"] = Number(text);
    else patch[field.key] = text || null;
  }
  if (Object.keys(limit).length > 0) patch["limit"] = limit;
  return patch;
}

function ObjectiveDialog({ vm, close, done }: { vm: Vm; close: () => void; done: (now: Vm) => void }) {
  // What was in force when the form was opened: a change by somebody else is not undone.
  const [was] = useState(vm.objective);
  const [values, setValues] = useState(() => Object.fromEntries(FIELDS.map((it) => [it.key, it.of(was)])));
  const [force, setForce] = useState(false);
  const [persist, setPersist] = useState(false);
  const body = patchOf(values, was);
  const query = [force && "force=true", persist && "persist=true"].filter(Boolean).join("&");
  const url = `${path("vms", vm.name, "objective")}${query && `?${query}`}`;
  const change: Change | null = Object.keys(body).length === 0 ? null : { method: "PATCH", url, body };
  return (
    <ChangeDialog title={`Change the objective of ${vm.name}`} change={change} verb="Put in force" close={close} done={done}>
      <div class="fields">
        {FIELDS.map((field) => (
          <label key={field.key}>
            {field.label}
            <input
              name={field.key}
              autocomplete="off"
              placeholder={field.hint}
              value={values[field.key]}
              onInput={(event) => setValues({ ...values, [field.key]: event.currentTarget.value })}
            />
          </label>
        ))}
      </div>
      <p class="muted">An empty field takes the promise or limit away.</p>
      <label class="check">
        <input type="checkbox" checked={persist} onChange={() => setPersist(!persist)} /> keep it over a restart
      </label>
      <label class="check">
        <input type="checkbox" checked={force} onChange={() => setForce(!force)} /> even if it does not fit the device
      </label>
    </ChangeDialog>
  );
}

export function ObjectiveSection({ vm, refresh }: { vm: Vm; refresh: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const [done, setDone] = useState<{ before: string; now: Vm } | null>(null);
  const { schedule } = vm;
  return (
    <section>
      <div class="titled">
        <h2>Objective</h2>
        <button type="button" onClick={() => setOpen(true)}>
          Change …
        </button>
      </div>
      {done?.now.name === vm.name && (
        <div class="notice good" role="status">
          <p>
            In force now: <strong>{words(done.now.objective)}</strong>
          </p>
          <p class="muted">before: {done.before}</p>
          {done.now.not_enforced.map((part) => (
            <p key={part.part}>
              {part.part} {part.value} is not enforced by {done.now.policy}
            </p>
          ))}
          {done.now.notes?.map((note) => <p key={note}>{note}</p>)}
          <button type="button" onClick={() => setDone(null)}>
            Close
          </button>
        </div>
      )}
      <p class="promise">{words(vm.objective)}</p>
      <p class="muted">
        {vm.feasible && <>All promises of {vm.device} together: {vm.feasible}. </>}
        {schedule && (
          <>
            By its schedule: {schedule.entry === null ? "outside of all entries" : `entry ${schedule.entry}`}
            {schedule.next && `, next change at ${schedule.next.at}`}
            {schedule.held && `; not applied: ${schedule.held}`}.
          </>
        )}
      </p>
      {vm.not_enforced.map((part) => (
        <p key={part.part} class="mark warn">
          ! {part.part} {part.value} is not enforced by {vm.policy}; {part.enforced_by.join(", ")} would
        </p>
      ))}
      {isOpen && (
        <ObjectiveDialog
          vm={vm}
          close={() => setOpen(false)}
          done={(now) => {
            setDone({ before: words(vm.objective), now });
            setOpen(false);
            refresh();
          }}
        />
      )}
    </section>
  );
}
