import { useEffect, useState } from "preact/hooks";

/** useNow returns the current time and updates it each second while it is needed. */
export function useNow(matters: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!matters) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [matters]);
  return now;
}
