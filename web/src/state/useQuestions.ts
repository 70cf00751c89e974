import { useEffect, useState } from "preact/hooks";
import type { Client } from "../api/client";
import { pause } from "../api/sse";
import type { OpenQuestion } from "../api/types";

/** The time between two readings of the questions of all teams, in ms. */
export const pace = 5_000;

/** useQuestions reads the open questions of all teams, and those that tasks of others ask roles of the key's owner, while the page is seen. */
export function useQuestions(client: Client, wanted: boolean): OpenQuestion[] {
  const [questions, setQuestions] = useState<OpenQuestion[]>([]);
  useEffect(() => {
    setQuestions([]);
    if (!wanted) return;
    const end = new AbortController();
    const seen = () => document.visibilityState === "visible";
    void poll(() => client.questions(), setQuestions, seen, end.signal);
    return () => end.abort();
  }, [client, wanted]);
  return questions;
}

/** merge adds to the questions of a watched team, which are how things are now, those that were read of everything else. */
export function merge(team: string, watched: OpenQuestion[], read: OpenQuestion[]): OpenQuestion[] {
  return [...watched, ...read.filter((q) => q.byRole || q.agentId !== team)];
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
