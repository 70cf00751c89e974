import { type RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

/**
 * useSuccessor hands the focus on when the element that has it goes away, so that who
 * works by keyboard stays in the place: to what next finds, while the element is there.
 */
export function useSuccessor<E extends HTMLElement>(ref: RefObject<E | null>, next: (from: E) => HTMLElement | null | undefined): void {
  useLayoutEffect(() => {
    const from = ref.current;
    return () => {
      if (from?.contains(document.activeElement)) (next(from) ?? find("#message"))?.focus();
    };
  }, []);
}

/** find is the first element of a selector. */
export function find(css: string, within: ParentNode = document): HTMLElement | null {
  return within.querySelector<HTMLElement>(css);
}

/** neighbor is the first element of a selector in what follows an element among its siblings, else in what is before it. */
export function neighbor(of: Element | null, css: string): HTMLElement | null {
  const { nextElementSibling: after, previousElementSibling: before } = of ?? { nextElementSibling: null, previousElementSibling: null };
  return (after && find(css, after)) ?? (before && find(css, before));
}
