import { useEffect, useState } from "preact/hooks";
import type { Client } from "../api/client";
import { pause } from "../api/sse";
import type { OpenQuestion } from "../api/types";

/** Watching a team does not tell what tasks of others ask roles: it is asked for each time, in ms. */
export const pace = 5_000;

/** useApprovals is what tasks of others ask roles of the key's owner, while the page is seen; without a key nobody is another one. */
export function useApprovals(client: Client, wanted: boolean): OpenQuestion[] {
  const [questions, setQuestions] = useState<OpenQuestion[]>([]);
  useEffect(() => {
    setQuestions([]);
    if (!wanted) return;
    const end = new AbortController();
    const seen = () => document.visibilityState === "visible";
    void poll(() => client.approvals(), setQuestions, seen, end.signal);
    return () => end.abort();
  }, [client, wanted]);
  return questions;
}

/** poll shows what is read, again and again where it is wanted, until signal is aborted. What cannot be read stays as it was. */
export async function poll<T>(read: () => Promise<T>, show: (t: T) => void, wanted: () => boolean, signal: AbortSignal): Promise<void> {
  for (; !signal.aborted; await pause(pace, signal)) {
    if (!wanted()) continue;
    const got = await read().then(
      (value) => ({ value }),
      () => null,
    );
    if (got && !signal.aborted) show(got.value);
  }
}
