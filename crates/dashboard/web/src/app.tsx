// Frame of all pages: navigation, health, theme, token and keys.

import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, type Health, path, setToken, token, TOKEN_REFUSED } from "./api";
import { DevicePage } from "./device";
import { clock, span } from "./format";
import { applyTheme, storedTheme, type Theme, to, usePolled, useRoute } from "./hooks";
import { type State, togglePaused, useLive } from "./live";
import { Overview } from "./overview";
import { Boundary, Dialog, Failure } from "./parts";
import { RecordingsPage } from "./recordings";
import { ReportsPage } from "./reports";
import { TransfersPage } from "./transfers";
import { VmPage } from "./vm";
import type { Connection } from "./watch";
import { WhatIfPage } from "./whatif";

const PAGES = [
  { name: "Overview", at: "", key: "1" },
  { name: "Transfers", at: "transfers", key: "2" },
  { name: "Recordings", at: "recordings", key: "3" },
  { name: "What if", at: "whatif", key: "4" },
  { name: "Reports", at: "reports", key: "5" },
] as const;

const KEYS: [string, string][] = [
  ["1 … 5", "overview, transfers, recordings, what if, reports"],
  ["/", "filter the VMs"],
  ["p", "pause, or go on"],
  ["t", "light, dark, or as the system has it"],
  ["Escape", "back to the overview; closes dialogues"],
  ["?", "this list"],
];

const CONNECTIONS: Record<Connection, [string, string]> = {
  connecting: ["none", "connecting"],
  live: ["good", "live"],
  polled: ["good", "live, asked each second"],
  paused: ["warn", "paused"],
  lost: ["bad", "no connection"],
  stuck: ["bad", "a device does not answer"],
};

/** Mark of the connection, with the age of figures that are old. */
function ConnectionMark({ state }: { state: State }) {
  const [kind, word] = state.isSilent ? ["bad", "no answer"] : CONNECTIONS[state.connection];
  return (
    <span class={`mark ${kind}`} title={state.live ? `last event at ${clock(state.live.at_ms)}` : ""}>
      ● {word}
      {state.ageS !== null && `: values are ${span(state.ageS)} old`}
    </span>
  );
}

function TokenDialog({ close }: { close: () => void }) {
  const [secret, setSecret] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const use = async (event: Event) => {
    event.preventDefault();
    setError(null);
    try {
      // Any answer but a refusal shows that the token is valid.
      await ask(path("history"), { secret: secret.trim() });
      setToken(secret.trim());
      close();
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : new ApiError(0, []));
    }
  };
  return (
    <Dialog title="Token" close={close}>
      <p>
        Without a token this page reads. Changes need one of the role operate or admin:{" "}
        <code>tidegate token add NAME --role operate</code>. It is kept in this tab until it is closed.
      </p>
      <form onSubmit={use}>
        <label>
          Secret
          <input
            type="password"
            autocomplete="off"
            required
            value={secret}
            onInput={(event) => setSecret(event.currentTarget.value)}
          />
        </label>
        <Failure error={error} />
        <div class="buttons">
          <button type="submit" class="primary">
            Use
          </button>
          {token() && (
            <button
              type="button"
              onClick={() => {
                setToken(null);
                close();
              }}
            >
              Forget the present one
            </button>
          )}
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function KeysDialog({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function nextTheme(theme: Theme): Theme {
  return theme === "auto" ? "light" : theme === "light" ? "dark" : "auto";
}

type Open = "token" | "keys" | null;

/** Follows keys that are not for a field or a dialogue. */
function useKeys(actions: Record<string, () => void>): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target as HTMLElement;
      const isTyped = target.matches("input, select, textarea");
      if (document.querySelector("dialog[open]") || (isTyped && event.key !== "Escape")) return;
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
}

/** Notice that the token of this tab was refused, until it is closed or another one is entered. */
function TokenRefused() {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const refused = () => show(true);
    addEventListener(TOKEN_REFUSED, refused);
    return () => removeEventListener(TOKEN_REFUSED, refused);
  }, []);
  if (!isShown || token()) return null;
  return (
    <div class="notice bad" role="alert">
      <p>The daemon refused the token of this tab, which has expired or was revoked. It was forgotten: the page goes on reading.</p>
      <button type="button" onClick={() => show(false)}>
        Close
      </button>
    </div>
  );
}

/** State of health, where it is not good, or why it is not known. */
function HealthNotice() {
  const { value, error } = usePolled<Health>("/healthz", 5000, true);
  // The mark of the connection says it if nothing answers.
  if (error) return error.status === 0 ? null : <Failure error={error} />;
  if (!value || value.status === "ok") return null;
  return (
    <div class="notice bad" role="alert">
      <strong>{value.status}</strong>
      {value.problems.map((problem) => (
        <p key={problem}>{problem}</p>
      ))}
    </div>
  );
}

/** Page of a route. */
function Page({ route: [page, name], state }: { route: string[]; state: State }) {
  const { live, rates } = state;
  if (page === "vm" && name) return <VmPage key={name} name={name} live={live} />;
  if (page === "device" && name) return <DevicePage key={name} name={name} live={live} />;
  if (page === "transfers") return <TransfersPage live={live} />;
  if (page === "recordings") return <RecordingsPage />;
  if (page === "whatif") return <WhatIfPage live={live} />;
  if (page === "reports") return <ReportsPage />;
  if (page) return <h1>There is no page “{page}”</h1>;
  if (live) return <Overview live={live} rates={rates} />;
  return <h1 class="muted">Waiting for the daemon …</h1>;
}

export function App() {
  const state = useLive();
  const route = useRoute();
  const [open, setOpen] = useState<Open>(null);
  const [theme, setTheme] = useState(storedTheme);
  const isPaused = state.connection === "paused";
  const turnTheme = () => {
    // The stored one: a key may be pressed before the last change is drawn.
    const next = nextTheme(storedTheme());
    applyTheme(next);
    setTheme(next);
  };
  useKeys({
    ...Object.fromEntries(PAGES.map(({ key, at }) => [key, () => (location.hash = to(...(at ? [at] : [])))])),
    "/": () => document.getElementById("filter")?.focus(),
    p: togglePaused,
    t: turnTheme,
    Escape: () => {
      (document.activeElement as HTMLElement | null)?.blur();
      location.hash = to();
    },
    "?": () => setOpen("keys"),
  });
  const [page, name] = route;
  const title = name ?? PAGES.find((it) => it.at === (page ?? ""))?.name ?? "Tidegate";
  useEffect(() => {
    document.title = `${title} – Tidegate`;
  }, [title]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        To the content
      </a>
      <header>
        <a class="brand" href={to()}>
          Tidegate
        </a>
        <nav aria-label="Pages">
          {PAGES.map(({ name, at }) => (
            <a key={at} href={to(...(at ? [at] : []))} aria-current={(page ?? "") === at ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <div class="tools">
          <ConnectionMark state={state} />
          <button type="button" onClick={togglePaused}>
            {isPaused ? "Go on" : "Pause"}
          </button>
          <button type="button" onClick={turnTheme} aria-label={`Theme: ${theme}`}>
            {theme === "auto" ? "◐ auto" : theme === "light" ? "☀ light" : "☾ dark"}
          </button>
          <button type="button" onClick={() => setOpen("token")}>
            {token() ? "Token ✓" : "Token"}
          </button>
          <button type="button" onClick={() => setOpen("keys")} aria-label="Keys">
            ?
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {state.problem && (
          <div class="notice bad" role="alert">
            {state.problem}
          </div>
        )}
        {state.note && (
          <div class="notice" role="status">
            {state.note}
          </div>
        )}
        <TokenRefused />
        <HealthNotice />
        <Boundary key={route.join("/")}>
          <div class={state.ageS === null ? undefined : "old"}>
            <Page route={route} state={state} />
          </div>
        </Boundary>
      </main>
      {open === "token" && <TokenDialog close={() => setOpen(null)} />}
      {open === "keys" && <KeysDialog close={() => setOpen(null)} />}
    </>
  );
}
