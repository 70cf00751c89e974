import { useEffect, useRef, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Trace } from "../api/types";
import { useNow } from "./useNow";

/** The least time between two readings of a trace, in ms; a long one is read less often. */
const pace = 250;

/** Traced is the trace of a task, as far as it is known. */
export interface Traced {
  trace: Trace | null;
  /** Why it cannot be read. */
  error: string;
}

const nothing: Traced = { trace: null, error: "" };

/**
 * useTrace reads the trace of a task, and again whenever version is another one; of a
 * task that is not followed, and runs, each second. The server folds it from the
 * journal; the page does not do that a second time.
 */
export function useTrace(client: Client, task: string, version: string, followed: boolean): Traced {
  const [traced, setTraced] = useState(nothing);
  const runs = traced.trace?.step !== undefined && !traced.trace.step.ended;
  const now = useNow(runs && !followed);
  const reader = useRef<Reader | null>(null);
  useEffect(() => {
    setTraced(nothing);
    if (!task) return;
    const r = new Reader(() => client.trace(task), setTraced);
    reader.current = r;
    return () => r.stop();
  }, [client, task]);
  useEffect(() => {
    if (task) reader.current?.want();
  }, [client, task, version, followed || now]);
  return traced;
}

/** Reader reads one thing at a time, and once more if it was wanted meanwhile. */
class Reader {
  private wanted = false;
  private busy = false;
  private stopped = false;
  private last: Trace | null = null;

  constructor(
    private readonly read: () => Promise<Trace>,
    private readonly show: (t: Traced) => void,
  ) {}

  want(): void {
    this.wanted = true;
    if (!this.busy) void this.run();
  }

  stop(): void {
    this.stopped = true;
  }

  private async run(): Promise<void> {
    this.busy = true;
    while (this.wanted && !this.stopped) {
      this.wanted = false;
      const began = Date.now();
      try {
        this.last = await this.read();
        this.tell("");
      } catch (e) {
        this.tell(e instanceof Error ? e.message : String(e)); // what was read before stays
      }
      await new Promise((done) => setTimeout(done, Math.max(pace, 2 * (Date.now() - began))));
    }
    this.busy = false;
  }

  private tell(error: string): void {
    if (!this.stopped) this.show({ trace: this.last, error });
  }
}
