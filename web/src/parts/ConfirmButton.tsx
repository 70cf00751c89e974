import { useRef, useState } from "preact/hooks";
import { useSuccessor } from "../state/useSuccessor";

/** ConfirmButton runs an action that cannot be undone, when it is pressed a second time. It keeps the focus meanwhile. */
export function ConfirmButton({ label, confirm, busy, act }: { label: string; confirm: string; busy: boolean; act: () => void }) {
  const [asked, setAsked] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  useSuccessor(button, (from) => [...(from.parentElement?.querySelectorAll("button") ?? [])].find((other) => other !== from));
  return (
    <button
      ref={button}
      class={asked ? "danger" : ""}
      aria-disabled={busy}
      onBlur={() => setAsked(false)}
      onKeyDown={(e) => e.key === "Escape" && setAsked(false)}
      onClick={() => {
        if (busy) return;
        if (asked) act();
        setAsked(!asked);
      }}
    >
      {asked ? confirm : label}
    </button>
  );
}
