import { useEffect, useState } from "preact/hooks";
import { APIError, type Client } from "../api/client";
import { pause } from "../api/sse";
import type { OpenQuestion } from "../api/types";

/** The interval at which the questions of all teams are read, in ms. */
export const pace = 5_000;

/** useQuestions polls the open questions that the user may answer while the page is visible. */
export function useQuestions(client: Client): OpenQuestion[] {
  const [questions, setQuestions] = useState<OpenQuestion[]>([]);
  useEffect(() => {
    setQuestions([]);
    const end = new AbortController();
    const seen = () => document.visibilityState === "visible";
    void poll(() => client.questions(), setQuestions, seen, end.signal);
    return () => end.abort();
  }, [client]);
  return questions;
}

/** merge combines the questions of the watched team, which are current, with the polled questions of other teams and those to roles. */
export function merge(team: string, watched: OpenQuestion[], read: OpenQuestion[]): OpenQuestion[] {
  return [...watched, ...read.filter((q) => q.byRole || q.agentId !== team)];
}

/**
 * poll reads a value periodically while it is wanted, and shows it, until signal is aborted or the user may not read
 * it. After a failure the previous value remains.
 */
export async function poll<T>(read: () => Promise<T>, show: (t: T) => void, wanted: () => boolean, signal: AbortSignal): Promise<void> {
  for (; !signal.aborted; await pause(pace, signal)) {
    if (!wanted()) continue;
    const got = await read().then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
    if ("error" in got) {
      if (got.error instanceof APIError && got.error.status === 403) return; // the audit log counts refused calls
    } else if (!signal.aborted) show(got.value);
  }
}
