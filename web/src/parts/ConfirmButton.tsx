import { useState } from "preact/hooks";

/** ConfirmButton does what cannot be undone when it is pressed a second time. */
export function ConfirmButton({ label, confirm, busy, act }: { label: string; confirm: string; busy: boolean; act: () => void }) {
  const [asked, setAsked] = useState(false);
  return (
    <button
      class={asked ? "danger" : ""}
      disabled={busy}
      onBlur={() => setAsked(false)}
      onKeyDown={(e) => e.key === "Escape" && setAsked(false)}
      onClick={() => {
        if (asked) act();
        setAsked(!asked);
      }}
    >
      {asked ? confirm : label}
    </button>
  );
}
