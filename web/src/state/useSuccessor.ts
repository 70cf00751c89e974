import { type RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

/**
 * useSuccessor moves the focus to the element that next returns when the focused element
 * is removed, so that keyboard users keep their place. It calls next before the removal.
 */
export function useSuccessor<E extends HTMLElement>(ref: RefObject<E | null>, next: (from: E) => HTMLElement | null | undefined): void {
  useLayoutEffect(() => {
    const from = ref.current;
    return () => {
      if (from?.contains(document.activeElement)) (next(from) ?? find("#message"))?.focus();
    };
  }, []);
}

/** find returns the first element that matches a selector. */
export function find(css: string, within: ParentNode = document): HTMLElement | null {
  return within.querySelector<HTMLElement>(css);
}

/** neighbor returns the first match of a selector in the siblings after an element, or else in those before it. */
export function neighbor(of: Element | null, css: string): HTMLElement | null {
  const { nextElementSibling: after, previousElementSibling: before } = of ?? { nextElementSibling: null, previousElementSibling: null };
  return (after && find(css, after)) ?? (before && find(css, before));
}
