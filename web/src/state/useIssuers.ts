import { useEffect, useState } from "preact/hooks";
import { readIssuers } from "../api/client";
import type { Issuer } from "../api/oauth";
import { poll } from "./useQuestions";

/** useIssuers returns the issuers with which users of the page sign in, null before they were read. It reads them until the server knows all endpoints. */
export function useIssuers(base: string): Issuer[] | null {
  const [issuers, setIssuers] = useState<Issuer[] | null>(null);
  useEffect(() => {
    const end = new AbortController();
    const seen = () => document.visibilityState === "visible";
    const show = (list: Issuer[] | null) => {
      setIssuers((before) => list ?? before ?? []);
      if (list?.every((i) => i.tokenEndpoint)) end.abort();
    };
    void poll(() => readIssuers(base).catch(() => null), show, seen, end.signal);
    return () => end.abort();
  }, [base]);
  return issuers;
}
