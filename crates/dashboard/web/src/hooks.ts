// State that components share.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask } from "./api";

export interface Polled<T> {
  value: T | null;
  error: ApiError | null;
  /** Asks again at once. */
  refresh: () => void;
}

/** Asks for `url` now and every `everyMs` milliseconds while the page is visible; null: not at all. */
export function usePolled<T>(url: string | null, everyMs: number): Polled<T> {
  const [value, setValue] = useState<{ url: string; value: T } | null>(null);
  const [failure, setFailure] = useState<{ url: string; error: ApiError } | null>(null);
  const [turn, setTurn] = useState(0);
  const busy = useRef(false);
  useEffect(() => {
    if (url === null) return;
    const control = new AbortController();
    busy.current = false;
    const poll = async () => {
      if (busy.current || document.hidden) return;
      busy.current = true;
      try {
        const answer = await ask<T>(url, { signal: control.signal });
        setValue({ url, value: answer });
        setFailure(null);
      } catch (problem) {
        if (control.signal.aborted) return;
        setFailure({ url, error: problem instanceof ApiError ? problem : new ApiError(0, []) });
      } finally {
        busy.current = false;
      }
    };
    void poll();
    const timer = setInterval(poll, everyMs);
    return () => {
      control.abort();
      clearInterval(timer);
    };
  }, [url, everyMs, turn]);
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
