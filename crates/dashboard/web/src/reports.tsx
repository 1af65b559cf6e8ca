// Reports of the daemon's history, which open in a tab of their own.

import { useState } from "preact/hooks";
import { path } from "./api";
import { usePolled } from "./hooks";
import { Failure } from "./parts";

const SPANS: [string, string][] = [
  ["5 minutes", "-5m"],
  ["15 minutes", "-15m"],
  ["1 hour", "-1h"],
  ["6 hours", "-6h"],
  ["24 hours", "-24h"],
];

/** Address of the report of a span. */
function reportOf(from: string, to: string): string {
  return `${path("report")}?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`;
}

export function ReportsPage() {
  // A daemon without a history says so.
  const { error } = usePolled<unknown>(path("history"), 60_000);
  const [from, setFrom] = useState("");
  const [end, setEnd] = useState("now");
  return (
    <>
      <h1>Reports</h1>
      <p class="muted">
        What was promised and kept, rates and latencies of each VM, who delayed whom and the load of each device over
        time, on one page without scripts that can be saved, printed and sent. It takes some seconds to make.
      </p>
      <Failure error={error} />
      <section>
        <h2>The last …</h2>
        <ul class="links">
          {SPANS.map(([name, since]) => (
            <li key={since}>
              <a class="button" href={reportOf(since, "now")} target="_blank" rel="noopener">
                {name}
              </a>
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h2>Another span</h2>
        <form
          class="panel"
          onSubmit={(event) => {
            event.preventDefault();
            window.open(reportOf(from, end), "_blank", "noopener");
          }}
        >
          <div class="fields">
            <label>
              From
              <input
                required
                autocomplete="off"
                placeholder="14:02, -15m or 2026-11-28T14:02:00Z"
                value={from}
                onInput={(event) => setFrom(event.currentTarget.value)}
              />
            </label>
            <label>
              To
              <input required autocomplete="off" value={end} onInput={(event) => setEnd(event.currentTarget.value)} />
            </label>
          </div>
          <div class="buttons">
            <button type="submit" class="primary">
              Open
            </button>
          </div>
        </form>
        <p class="muted">
          <code>tidegate report --last 1h FILE</code> writes the same page.
        </p>
      </section>
    </>
  );
}
