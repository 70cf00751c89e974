import { useEffect, useRef, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Trace } from "../api/types";
import { useNow } from "./useNow";

/** The minimum interval between two reads of a trace, in ms; a trace that takes long is read less often. */
const pace = 250;

/** Traced is the last trace of a task that was read. */
export interface Traced {
  trace: Trace | null;
  /** Why the last read failed. */
  error: string;
}

const empty: Traced = { trace: null, error: "" };

/**
 * useTrace reads the trace of a task, and reads it again whenever version changes. A
 * running task that is not followed is read every second. The server computes the trace
 * from the journal, so that the page need not.
 */
export function useTrace(client: Client, task: string, version: string, followed: boolean): Traced {
  const [traced, setTraced] = useState(empty);
  const runs = traced.trace?.step !== undefined && !traced.trace.step.ended;
  const now = useNow(runs && !followed);
  const reader = useRef<Reader | null>(null);
  useEffect(() => {
    setTraced(empty);
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

/** Reader runs one read at a time, and another one if it was requested meanwhile. */
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
        this.publish("");
      } catch (e) {
        this.publish(e instanceof Error ? e.message : String(e)); // the previous trace remains
      }
      await new Promise((done) => setTimeout(done, Math.max(pace, 2 * (Date.now() - began))));
    }
    this.busy = false;
  }

  private publish(error: string): void {
    if (!this.stopped) this.show({ trace: this.last, error });
  }
}
