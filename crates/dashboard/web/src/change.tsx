// Changes: the request as it will be sent, and its sending.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError, ask } from "./api";
import { Dialog, Failure } from "./parts";

/** Request that changes something. */
export interface Change {
  method: "PUT" | "PATCH" | "POST" | "DELETE";
  url: string;
  body?: unknown;
}

/** A request as it will be sent; null: nothing would change. */
export function RequestLine({ change }: { change: Change | null }) {
  const words = change && [change.method, change.url, ...(change.body === undefined ? [] : [JSON.stringify(change.body)])];
  return (
    <p>
      Request: <code>{words ? words.join(" ") : "no change"}</code>
    </p>
  );
}

interface Sending {
  /** Why the last request was refused. */
  error: ApiError | null;
  busy: boolean;
  send: (change: Change) => Promise<void>;
}

/** Sends one change at a time; `done` gets the answer. */
export function useSending<T>(done: (answer: T) => void): Sending {
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const send = async ({ url, ...options }: Change) => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      done(await ask<T>(url, options));
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : new ApiError(0, []));
    } finally {
      setBusy(false);
    }
  };
  return { error, busy, send };
}

/** Form of a change: its fields, the request, and the button that sends it; `change` is null while there is none. */
export function ChangeDialog<T>(props: {
  title: string;
  change: Change | null;
  verb: string;
  close: () => void;
  done: (answer: T) => void;
  /** Why the form itself lacks something. */
  unread?: ApiError | null;
  children?: ComponentChildren;
}) {
  const { change } = props;
  const { error, busy, send } = useSending<T>(props.done);
  const submit = (event: Event) => {
    event.preventDefault();
    if (change) void send(change);
  };
  return (
    <Dialog title={props.title} close={props.close}>
      <form onSubmit={submit}>
        {props.children}
        <RequestLine change={change} />
        <Failure error={error ?? props.unread ?? null} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={change === null || busy}>
            {props.verb}
          </button>
          <button type="button" onClick={props.close}>
            Back
          </button>
        </div>
      </form>
    </Dialog>
  );
}
