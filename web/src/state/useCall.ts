import { useState } from "preact/hooks";

/** Call is the state of a call that a button makes. */
export interface Call {
  busy: boolean;
  /** Why the last call failed; "" if it succeeded. */
  error: string;
  /** Makes a call, unless one is running, and returns whether it succeeded. */
  make(call: () => Promise<unknown>): Promise<boolean>;
}

/** useCall returns the state of a button's call. */
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
