// Elements that are on the screen or near it. Drawing the others costs as much, and nobody looks at them.

import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Distance from the screen at which elements count as seen, so that they have their figures when they are scrolled to. */
const MARGIN = "300px";

const changed = new WeakMap<Element, (isSeen: boolean) => void>();
/** One observer for all elements of the page: each has a cost of its own. */
let observer: IntersectionObserver | null = null;

function observe(element: Element, change: (isSeen: boolean) => void): () => void {
  observer ??= new IntersectionObserver(
    (entries) => entries.forEach((entry) => changed.get(entry.target)?.(entry.isIntersecting)),
    { rootMargin: MARGIN },
  );
  changed.set(element, change);
  observer.observe(element);
  return () => observer?.unobserve(element);
}

/** Whether an element is on the screen or near it; true until that is known. */
export function useIsSeen(element: RefObject<Element | null>): boolean {
  const [isSeen, setIsSeen] = useState(true);
  useEffect(() => (element.current ? observe(element.current, setIsSeen) : undefined), []);
  return isSeen;
}
