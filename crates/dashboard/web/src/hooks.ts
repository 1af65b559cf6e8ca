// State that components share.

import { useEffect, useState } from "preact/hooks";
import { ApiError, ask } from "./api";
import { isPaused, listen } from "./live";

export interface Polled<T> {
  value: T | null;
  error: ApiError | null;
  /** Asks again at once. */
  refresh: () => void;
}

/** Timers are not exact: a request is made by so much too early. */
const SLACK_MS = 100;

/**
 * Asks for `url` now and every `everyMs` milliseconds while the page is visible and, without
 * `whilePaused`, not paused; null: not at all. Asks again at once when the page comes back.
 */
export function usePolled<T>(url: string | null, everyMs: number, whilePaused = false): Polled<T> {
  const [value, setValue] = useState<{ url: string; value: T } | null>(null);
  const [failure, setFailure] = useState<{ url: string; error: ApiError } | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (url === null) return;
    const control = new AbortController();
    let busy = false;
    let askedMs = 0;
    const poll = async () => {
      busy = true;
      askedMs = performance.now();
      try {
        const answer = await ask<T>(url, { signal: control.signal });
        setValue({ url, value: answer });
        setFailure(null);
      } catch (problem) {
        if (control.signal.aborted) return;
        setFailure({ url, error: problem instanceof ApiError ? problem : new ApiError(0, []) });
      } finally {
        busy = false;
      }
    };
    const pollIfDue = () => {
      if (busy || document.hidden || (isPaused() && !whilePaused)) return;
      if (performance.now() - askedMs >= everyMs - SLACK_MS) void poll();
    };
    // A page that is opened, or has changed something, has figures also while all others stand still.
    void poll();
    const timer = setInterval(pollIfDue, everyMs);
    const unlisten = listen(pollIfDue);
    document.addEventListener("visibilitychange", pollIfDue);
    return () => {
      control.abort();
      clearInterval(timer);
      unlisten();
      document.removeEventListener("visibilitychange", pollIfDue);
    };
  }, [url, everyMs, whilePaused, turn]);
  // An answer about another VM is not shown for this one.
  const current = value?.url === url ? value.value : null;
  const error = failure?.url === url ? failure.error : null;
  return { value: current, error, refresh: () => setTurn((n) => n + 1) };
}

/** Route of the page: segments behind `#/`. */
export function useRoute(): string[] {
  const read = () => {
    const parts = location.hash.replace(/^#\/?/, "").split("/");
    return parts.filter(Boolean).map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  };
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Link to a page of this document. */
export function to(...segments: string[]): string {
  return `#/${segments.map(encodeURIComponent).join("/")}`;
}

const THEME = "tidegate-theme";
export type Theme = "auto" | "light" | "dark";

export function storedTheme(): Theme {
  const theme = localStorage.getItem(THEME);
  return theme === "light" || theme === "dark" ? theme : "auto";
}

export function applyTheme(theme: Theme): void {
  if (theme === "auto") {
    localStorage.removeItem(THEME);
    delete document.documentElement.dataset["theme"];
  } else {
    localStorage.setItem(THEME, theme);
    document.documentElement.dataset["theme"] = theme;
  }
  dispatchEvent(new Event("themechange"));
}

/** Counts changes between light and dark, because canvases are drawn with the colours of one. */
export function useThemeTurn(): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", changed);
    media.addEventListener("change", changed);
    return () => {
      removeEventListener("themechange", changed);
      media.removeEventListener("change", changed);
    };
  }, []);
  return turn;
}
