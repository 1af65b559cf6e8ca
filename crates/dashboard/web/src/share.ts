// Sharing of one window's work among all windows of a browser: a browser opens six connections to a host, and events
// take one each.
//
//   leader:    holds the lock; does the work and broadcasts what it gets
//   followers: wait for the lock, which is theirs when the leader closes, and receive
//
// Windows of other versions of the page are left alone: they have another name.

/** Part of windows in the work that one of them does. */
export interface Share<T> {
  /** Waits to lead, and receives messages. With `isUrgent` the present leader is replaced at once. */
  join(isUrgent?: boolean): void;
  /** Leads, waits and receives no more. */
  leave(): void;
  /** Sends a message to all other windows that have joined. */
  broadcast(message: T): void;
  readonly isLeading: boolean;
}

/** Reactions of a window to its part. */
export interface Actions<T> {
  /** This window leads from now on. */
  lead(): void;
  /** Another window has replaced this one, which waits again. */
  replaced(): void;
  /** Another window has sent a message. */
  receive(message: T): void;
}

/** Message with the number of its sender's leadership; null from followers. */
interface Envelope<T> {
  term: number | null;
  message: T;
}

/** Returns this window's part; null where browsers have no locks, which is on pages that are not secure contexts. */
export function share<T>(name: string, actions: Actions<T>): Share<T> | null {
  if (!navigator.locks) return null;
  /** Closed while this window has not joined, so that no messages queue up in a hidden window. */
  let channel: BroadcastChannel | null = null;
  /** Number of the newest leadership that is known, this window's own included. */
  let newest = 0;
  /** Number of this window's last leadership. */
  let ownTerm = 0;
  let endPart: (() => void) | null = null;

  function receive({ term, message }: Envelope<T>): void {
    // A leader that was stopped and replaced sends its old messages when it goes on.
    if (term !== null && term < newest) return;
    newest = term ?? newest;
    actions.receive(message);
  }

  function openChannel(): BroadcastChannel {
    newest = 0;
    const opened = new BroadcastChannel(name);
    // Messages that were queued before the channel was closed may still arrive.
    opened.onmessage = (event) => opened === channel && receive(event.data as Envelope<T>);
    return opened;
  }

  const own = {
    isLeading: false,
    join(isUrgent = false) {
      endPart?.();
      channel ??= openChannel();
      const control = new AbortController();
      let release = () => {};
      const held = new Promise<void>((done) => (release = done));
      let hasLeft = false;
      const hold = () => {
        if (hasLeft) return undefined;
        own.isLeading = true;
        // Later than all that this window knows of, and than those that ended before it was opened.
        ownTerm = newest = Math.max(newest + 1, Date.now());
        actions.lead();
        return held;
      };
      // A lock that is stolen cannot be waited for, so there is nothing to abort.
      const options: LockOptions = isUrgent ? { steal: true } : { signal: control.signal };
      navigator.locks.request(name, options, hold).catch((error: DOMException) => {
        if (hasLeft) return;
        // A page that is denied locks leads by itself.
        if (error.name !== "AbortError") return void hold();
        own.join();
        actions.replaced();
      });
      endPart = () => {
        hasLeft = true;
        own.isLeading = false;
        control.abort();
        release();
      };
    },
    leave() {
      endPart?.();
      endPart = null;
      channel?.close();
      channel = null;
    },
    broadcast(message: T) {
      const envelope: Envelope<T> = { term: own.isLeading ? ownTerm : null, message };
      channel?.postMessage(envelope);
    },
  };
  return own;
}
