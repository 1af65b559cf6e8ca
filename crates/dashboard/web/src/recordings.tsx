// Recordings of all requests of a device: what there is, and the switch.

import { useState } from "preact/hooks";
import { path, type Recordings } from "./api";
import { ChangeDialog } from "./change";
import { localStamp, size, whole, zone } from "./format";
import { to, usePolled } from "./hooks";
import { Headings, Failure, TableFrame } from "./parts";

export function RecordingsPage() {
  const { value, error, refresh } = usePolled<Recordings>(path("recordings"), 2000);
  const [said, setSaid] = useState<string | null>(null);
  const [switched, setSwitched] = useState<{ device: string; on: boolean } | null>(null);
  const changed = (device: string, now: Recordings) => {
    const is = now.devices.find((it) => it.device === device)?.on;
    setSaid(`In force now: recording of ${device} is ${is ? "on" : "off"}`);
    setSwitched(null);
    refresh();
  };
  const names = ["Device", "State", "Requests", "Missing", "Files", "Size", "From", "Until", "Switch"];
  return (
    <>
      <h1>Recordings</h1>
      <Failure error={error} />
      {said && (
        <div class="notice good" role="status">
          {said}
        </div>
      )}
      {value && (
        <>
          <p class="muted">
            {value.directory
              ? `${size(value.bytes)} of at most ${size(value.max_bytes)} in ${value.directory}`
              : "There is no place for recordings: [recording] or [store] in the configuration names one."}
          </p>
          {value.on_storage_of?.map((device) => (
            <p key={device} class="mark warn">
              ! recordings are written to the storage of {device}, beside the I/O of its VMs
            </p>
          ))}
          <p class="muted">Times are those of {zone(Date.now())}.</p>
          <TableFrame label="Recordings">
            <table class="wide">
              <Headings names={names} />
              <tbody>
                {value.devices.map((it) => (
                  <tr key={it.device}>
                    <th scope="row">
                      <a href={to("device", it.device)}>{it.device}</a>
                    </th>
                    <td>
                      {it.on ? <span class="mark good">● on</span> : "off"}
                      {it.problem && <span class="mark bad"> {it.problem}</span>}
                    </td>
                    <td class="number">{whole(it.requests)}</td>
                    <td class="number">{whole(it.dropped)}</td>
                    <td class="number">{it.files}</td>
                    <td class="number">{size(it.bytes)}</td>
                    <td>{it.from ? localStamp(it.from) : "–"}</td>
                    <td>{it.until ? localStamp(it.until) : "–"}</td>
                    <td>
                      <button type="button" onClick={() => setSwitched({ device: it.device, on: !it.on })}>
                        {it.on ? "Switch off" : "Switch on"}
                        <span aria-hidden="true"> …</span>
                        <span class="visually-hidden"> the recording of {it.device}</span>
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </TableFrame>
        </>
      )}
      {switched && (
        <ChangeDialog<Recordings>
          title={`Switch the recording of ${switched.device} ${switched.on ? "on" : "off"}`}
          change={{ method: "PUT", url: path("devices", switched.device, "recording"), body: { on: switched.on } }}
          verb={switched.on ? "Switch on" : "Switch off"}
          close={() => setSwitched(null)}
          done={(now) => changed(switched.device, now)}
        />
      )}
    </>
  );
}
