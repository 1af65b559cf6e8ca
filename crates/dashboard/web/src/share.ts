// One window of a browser for all of them: a browser opens six connections to a host, and events take one each.
//
//   leader:    holds the lock; does the work and tells the others
//   followers: wait for the lock, which is theirs when the leader closes, and hear
//
// Windows of other versions of the page are left alone: they have another name.

/** Part of windows in the work that one of them does. */
export interface Share<T> {
  /** Waits to lead. With `isUrgent` the present leader is replaced at once. */
  join(isUrgent?: boolean): void;
  /** Leads and waits no more. */
  leave(): void;
  /** Tells all other windows. */
  tell(word: T): void;
  readonly isLeading: boolean;
}

/** What the part of a window makes it do. */
export interface Actions<T> {
  /** This window leads from now on. */
  lead(): void;
  /** Another window has replaced this one, which waits again. */
  replaced(): void;
  /** Another window told something. */
  hear(word: T): void;
}

/** Returns this window's part; null where browsers have no locks, which is on pages that are not secure contexts. */
export function share<T>(name: string, actions: Actions<T>): Share<T> | null {
  if (!navigator.locks) return null;
  const channel = new BroadcastChannel(name);
  channel.onmessage = (event) => actions.hear(event.data as T);
  /** Ends the present part. */
  let end: (() => void) | null = null;
  const it = {
    isLeading: false,
    join(isUrgent = false) {
      it.leave();
      const control = new AbortController();
      let release = () => {};
      const held = new Promise<void>((done) => (release = done));
      let hasLeft = false;
      const hold = () => {
        if (hasLeft) return undefined;
        it.isLeading = true;
        actions.lead();
        return held;
      };
      // A lock that is stolen cannot be waited for, so there is nothing to abort.
      const options: LockOptions = isUrgent ? { steal: true } : { signal: control.signal };
      navigator.locks.request(name, options, hold).catch((error: DOMException) => {
        if (hasLeft) return;
        // A page that is denied locks leads by itself.
        if (error.name !== "AbortError") return void hold();
        it.join();
        actions.replaced();
      });
      end = () => {
        hasLeft = true;
        it.isLeading = false;
        control.abort();
        release();
      };
    },
    leave() {
      end?.();
      end = null;
    },
    tell(word: T) {
      channel.postMessage(word);
    },
  };
  return it;
}
