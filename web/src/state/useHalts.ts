import { useEffect, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Halt } from "../api/types";
import { poll } from "./useQuestions";

/** useHalts polls what is halted while the page is visible, and stops if the key may not see that: null. The function reads it again at once. */
export function useHalts(client: Client): [halts: Halt[] | null, read: () => void] {
  const [halts, setHalts] = useState<Halt[] | null>(null);
  const [reads, setReads] = useState(0);
  useEffect(() => setHalts(null), [client]);
  useEffect(() => {
    const end = new AbortController();
    const seen = () => document.visibilityState === "visible";
    const show = (list: Halt[] | null) => {
      setHalts(list);
      if (!list) end.abort();
    };
    void poll(() => client.halts(), show, seen, end.signal);
    return () => end.abort();
  }, [client, reads]);
  return [halts, () => setReads((n) => n + 1)];
}
