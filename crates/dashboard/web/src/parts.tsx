// Small parts that several pages have.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ApiError, LiveAttainment } from "./api";
import { missedLately } from "./promises";
import { clock, percent } from "./format";

/** Whether a promise is kept: a sign and a word, because colours are not for everybody. */
export function Mark({ kept, children }: { kept: boolean | undefined; children?: ComponentChildren }) {
  const [kind, sign, word] =
    kept === undefined ? ["none", "–", "not judged"] : kept ? ["good", "✓", "kept"] : ["bad", "✗", "missed"];
  return (
    <span class={`mark ${kind}`}>
      <span aria-hidden="true">{sign}</span> {word}
      {children}
    </span>
  );
}

/** Whether promises were missed in the last 5 minutes, however small their share of all time is. */
export function Lately({ parts }: { parts: LiveAttainment[] | undefined }) {
  const missed = missedLately(parts);
  if (missed === 0) return null;
  return (
    <span class="mark bad nowrap">
      <span aria-hidden="true">▼</span> missed lately: {missed} s in 5 min
    </span>
  );
}

/** Marks of all parts of an objective, the missed ones with their shares. */
export function Marks({ parts }: { parts: LiveAttainment[] | undefined }) {
  if (!parts?.length) return <span class="muted">–</span>;
  if (parts.every((part) => part.kept)) {
    return (
      <span class="marks">
        <Lately parts={parts} />
        <Mark kept={true} />
      </span>
    );
  }
  return (
    <span class="marks">
      <Lately parts={parts} />
      {parts.map((part) => (
        <span key={part.part} class="nowrap">
          <Mark kept={part.kept} />{" "}
          <span class="muted">
            {part.part}
            {part.kept === false && ` ${percent(part.kept_percent)}`}
          </span>
        </span>
      ))}
    </span>
  );
}

/** Reasons why a request was refused, with what would be right. */
export function Failure({ error }: { error: ApiError | null }) {
  if (!error) return null;
  const needsToken = error.isChange && (error.status === 401 || error.status === 403);
  return (
    <div class="notice bad" role="alert">
      {error.problems.length === 0 && <p>{error.message}</p>}
      {error.problems.map((problem, i) => (
        <p key={i}>
          {problem.where && <code>{problem.where}</code>} {problem.what}
          {problem.allowed && <span class="muted"> — {problem.allowed}</span>}
        </p>
      ))}
      {needsToken && <p>Changes need a token of the role operate or admin: “Token” at the top.</p>}
    </div>
  );
}

/** Shows why its children cannot be drawn, so that the rest of the page goes on. */
export class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };

  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override componentDidCatch(error: unknown) {
    console.error(error);
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <div class="notice bad" role="alert">
        <p>This page cannot be drawn, and shows no figures: {String(this.state.error)}</p>
        <button type="button" onClick={() => this.setState({ error: null })}>
          Draw it again
        </button>
      </div>
    );
  }
}

export function Figure({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Table in a frame that can be scrolled sideways, also by keyboard. */
export function TableFrame({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="frame" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

/** Dialogue above the page; Escape closes it. */
export function Dialog(props: { title: string; close: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onClose={props.close}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** Bar of parts of a whole, with a list of them below. */
export function Shares({ parts, format }: { parts: [string, number, string][]; format: (n: number) => string }) {
  const total = parts.reduce((sum, [, n]) => sum + n, 0);
  if (total === 0) return <p class="muted">no requests</p>;
  return (
    <div class="shares">
      <div class="bar" aria-hidden="true">
        {parts.map(([name, n, colour]) => (
          <span key={name} style={{ width: `${(100 * n) / total}%`, background: `var(${colour})` }} />
        ))}
      </div>
      <table>
        <tbody>
          {parts.map(([name, n, colour]) => (
            <tr key={name}>
              <th scope="row">
                <span class="swatch" style={{ background: `var(${colour})` }} /> {name}
              </th>
              <td class="number">{percent((100 * n) / total)}</td>
              <td class="number muted">{format(n)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Choice between all time and the time since the page was opened. */
export function SincePicker({ label, isRecent, pick }: { label: string; isRecent: boolean; pick: (isRecent: boolean) => void }) {
  return (
    <div class="picker" role="group" aria-label={label}>
      <button type="button" aria-pressed={!isRecent} onClick={() => pick(false)}>
        Since the start
      </button>
      <button type="button" aria-pressed={isRecent} onClick={() => pick(true)}>
        Since this page is open
      </button>
    </div>
  );
}

/** Says that counters since the page is open have a shorter time. */
export function Anew({ atMs }: { atMs: number | null }) {
  if (atMs === null) return null;
  return (
    <p class="muted">
      Counters began anew shortly before {clock(atMs)}, as after a restart of the daemon: what was before is left out.
    </p>
  );
}

/** Headings of a table's columns. */
export function Headings({ names }: { names: string[] }) {
  return (
    <thead>
      <tr>
        {names.map((name) => (
          <th key={name} scope="col">
            {name}
          </th>
        ))}
      </tr>
    </thead>
  );
}
