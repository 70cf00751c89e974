import type { Session } from "../state/session";
import type { Issuer } from "./oauth";
import { follow } from "./sse";
import type { Choice, Costs, Halt, HaltReceipt, OpenQuestion, Task, Trace, WatchTeamResponse } from "./types";

/** APIError is the error with which the server rejects a call. */
export class APIError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** Watcher receives the stream of a team. */
export interface Watcher {
  /** Receives messages in order, each one once. */
  messages(messages: WatchTeamResponse[]): void;
  /** Receives whether the stream is open. */
  opened(open: boolean): void;
  /** Called if the team cannot be watched. */
  refused(error: APIError): void;
}

/** readIssuers returns the issuers with which users of the page sign in. */
export async function readIssuers(base: string): Promise<Issuer[]> {
  const response = await fetch(`${base}team/v1/monitor/sign-in`, { cache: "no-store" });
  if (!response.ok) throw await failure(response);
  return ((await response.json()) as { issuers: Issuer[] }).issuers;
}

/** Client calls the server that serves the page. */
export class Client {
  private ended: APIError | null = null; // why the server has rejected the session

  /**
   * @param base the URL of the server, with a slash at its end.
   * @param session has the API key or the token to send.
   * @param unauthenticated is called when the server rejects the session. Later calls fail without a request.
   */
  constructor(
    private readonly base: string,
    private readonly session: Session,
    private readonly unauthenticated: (error: APIError) => void,
  ) {}

  /** choices returns the teams and then the other agents, all of which can be watched. */
  async choices(): Promise<Choice[]> {
    const [teams, agents] = await Promise.all([
      this.pages<{ id: string; name?: string }>("team/v1/teams", "teams"),
      this.pages<{ id: string; kind?: string; info?: { name?: string } }>("team/v1/registry/agents", "agents"),
    ]);
    return [
      ...teams.map((t) => ({ id: t.id, name: t.name || t.id, team: true })),
      ...agents.filter((a) => a.kind !== "team").map((a) => ({ id: a.id, name: a.info?.name || a.id, team: false })),
    ];
  }

  /** trace returns the trace of a task. */
  async trace(task: string): Promise<Trace> {
    return (await this.get<{ trace: Trace }>(`team/v1/monitor/tasks/${encodeURIComponent(task)}:trace`)).trace;
  }

  /** recent returns the newest tasks of a team. */
  async recent(team: string): Promise<Task[]> {
    return (await this.get<{ tasks?: Task[] }>(`${encodeURIComponent(team)}/tasks?pageSize=20`)).tasks ?? [];
  }

  /** questions returns the open questions in the caller's tasks, and those to its roles in other tasks. */
  async questions(): Promise<OpenQuestion[]> {
    return this.pages<OpenQuestion>("team/v1/monitor/questions", "questions");
  }

  /** answer answers a question of a task. */
  async answer(task: string, question: string, text: string): Promise<void> {
    await this.post(`team/v1/monitor/tasks/${encodeURIComponent(task)}:answer`, { question, text });
  }

  /** cancel cancels a task and waits for its end. */
  async cancel(team: string, task: string): Promise<void> {
    await this.post(`${encodeURIComponent(team)}/tasks/${encodeURIComponent(task)}:cancel`, {});
  }

  /** send sends a message to a team and returns the ID of the task. Sending the same messageId again returns the same task. */
  async send(team: string, messageId: string, text: string): Promise<string> {
    const sent = await this.post<{ task?: Task }>(`${encodeURIComponent(team)}/message:send`, {
      message: { messageId, role: "ROLE_USER", parts: [{ text }] },
      configuration: { returnImmediately: true },
    });
    return sent.task?.id ?? "";
  }

  /** costs returns what tasks have spent in the last days, of all teams or of one, by a CostGroup. */
  async costs(by: string, days: number, team: string): Promise<Costs> {
    const since = new Date(Date.now() - days * 86_400_000).toISOString();
    return this.get<Costs>(`team/v1/monitor/costs?groupBy=COST_GROUP_${by}&since=${since}&team=${encodeURIComponent(team)}`);
  }

  /** halts returns what is halted; null if the key may not see that. */
  async halts(): Promise<Halt[] | null> {
    try {
      return (await this.get<{ halts?: Halt[] }>("team/v1/halts")).halts ?? [];
    } catch (e) {
      if (e instanceof APIError && [403, 404].includes(e.status)) return null;
      throw e;
    }
  }

  /** halt halts a subject and waits until no call can begin. */
  async halt(kind: string, name: string, reason: string, pause: boolean): Promise<HaltReceipt> {
    return this.post<HaltReceipt>("team/v1/halts", { kind, name, reason, pause });
  }

  /** resume ends a halt. */
  async resume({ kind, name, account }: Halt): Promise<void> {
    await this.post("team/v1/halts:resume", { kind, name, account });
  }

  /** watch streams a team to a watcher until signal is aborted. */
  watch(team: string, watcher: Watcher, signal: AbortSignal): Promise<void> {
    const path = `team/v1/monitor/teams/${encodeURIComponent(team)}:watch`;
    return follow(
      {
        open: (last, s) => this.call(path, { signal: s, headers: { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) } }),
        frames: (frames) => watcher.messages(frames.map((f) => JSON.parse(f.data) as WatchTeamResponse)),
        opened: (open) => watcher.opened(open),
        final: (error) => {
          const final = error instanceof APIError && [400, 401, 403, 404].includes(error.status);
          if (final) watcher.refused(error);
          return final;
        },
      },
      signal,
    );
  }

  private async pages<T>(path: string, field: string): Promise<T[]> {
    const all: T[] = [];
    for (let token = "", page = 0; page === 0 || (token && page < 20); page++) {
      const answer = await this.get<Record<string, unknown>>(`${path}?pageSize=100&pageToken=${encodeURIComponent(token)}`);
      all.push(...((answer[field] as T[] | undefined) ?? []));
      token = (answer["nextPageToken"] as string | undefined) ?? "";
    }
    return all;
  }

  private async get<T>(path: string): Promise<T> {
    return (await (await this.call(path, {})).json()) as T;
  }

  private async post<T>(path: string, body: object): Promise<T> {
    const response = await this.call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    return (await response.json()) as T;
  }

  private async call(path: string, init: RequestInit): Promise<Response> {
    for (let renewed = false; ; renewed = true) {
      if (this.ended) throw this.ended;
      const bearer = await this.session.bearer();
      const headers = new Headers(init.headers);
      headers.set("A2A-Version", "1.0");
      if (bearer) headers.set("Authorization", `Bearer ${bearer}`);
      const response = await fetch(this.base + path, { cache: "no-store", ...init, headers }).catch((e: unknown) => {
        if (e instanceof TypeError) throw new APIError(0, "UNAVAILABLE", `The server at ${this.base} cannot be reached. Check that it runs, then try again.`);
        throw e; // the call was aborted
      });
      if (response.ok) return response;
      const error = await failure(response);
      if (response.status !== 401) throw error;
      if (!renewed && (await this.session.renew(bearer))) continue;
      this.ended = error;
      this.unauthenticated(error);
    }
  }
}

/** failure returns the error in a response. */
async function failure(response: Response): Promise<APIError> {
  interface Body {
    error?: { message?: string; details?: { reason?: string }[] };
  }
  const body: Body = await response.json().catch(() => ({}));
  const reason = body.error?.details?.find((d) => d.reason)?.reason ?? "";
  return new APIError(response.status, reason, body.error?.message ?? `the server answered ${response.status}`);
}

/** newID returns an ID of 128 random bits. crypto.randomUUID is not available over plain HTTP. */
export function newID(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
