import { useState } from "preact/hooks";

/** Call is a call that a button makes. */
export interface Call {
  busy: boolean;
  /** Why the last one failed; "" where it did not. */
  error: string;
  /** Makes a call, unless one is under way; says whether it went well. */
  make(call: () => Promise<unknown>): Promise<boolean>;
}

/** useCall keeps how a button's call stands. */
export function useCall(): Call {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  async function make(call: () => Promise<unknown>): Promise<boolean> {
    if (busy) return false;
    setBusy(true);
    setError("");
    try {
      await call();
      return true;
    } catch (e) {
      setError(e instanceof Error ? e.message : String(e));
      return false;
    } finally {
      setBusy(false);
    }
  }
  return { busy, error, make };
}
