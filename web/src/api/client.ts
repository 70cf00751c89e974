import { follow } from "./sse";
import type { Choice, OpenQuestion, Task, Trace, WatchTeamResponse } from "./types";

/** APIError is what the server refuses a call with. */
export class APIError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** Watcher is told of a team. */
export interface Watcher {
  /** Messages, in order, each one once. */
  messages(messages: WatchTeamResponse[]): void;
  /** Whether the stream is open. */
  opened(open: boolean): void;
  /** The team cannot be watched. */
  refused(error: APIError): void;
}

/** Client calls the server that the page came from. */
export class Client {
  /**
   * @param base URL of the server, with a slash at its end.
   * @param key the API key; "" is none.
   * @param unauthenticated is called when the server wants another key.
   */
  constructor(
    private readonly base: string,
    private readonly key: string,
    private readonly unauthenticated: () => void,
  ) {}

  /** choices lists what can be watched: teams, then the other agents. */
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

  /** trace explains a task. */
  async trace(task: string): Promise<Trace> {
    return (await this.get<{ trace: Trace }>(`team/v1/monitor/tasks/${encodeURIComponent(task)}:trace`)).trace;
  }

  /** recent lists the newest tasks of a team. */
  async recent(team: string): Promise<Task[]> {
    return (await this.get<{ tasks?: Task[] }>(`${encodeURIComponent(team)}/tasks?pageSize=20`)).tasks ?? [];
  }

  /** questions lists the open questions of all teams: of the caller's tasks, and those that others' tasks ask its roles. */
  async questions(): Promise<OpenQuestion[]> {
    return this.pages<OpenQuestion>("team/v1/monitor/questions", "questions");
  }

  /** answer answers a question of a task. */
  async answer(task: string, question: string, text: string): Promise<void> {
    await this.post(`team/v1/monitor/tasks/${encodeURIComponent(task)}:answer`, { question, text });
  }

  /** cancel ends a task; it returns when the task has ended. */
  async cancel(team: string, task: string): Promise<void> {
    await this.post(`${encodeURIComponent(team)}/tasks/${encodeURIComponent(task)}:cancel`, {});
  }

  /** send gives a team a task, and returns its id. The same messageId is the same task. */
  async send(team: string, messageId: string, text: string): Promise<string> {
    const sent = await this.post<{ task?: Task }>(`${encodeURIComponent(team)}/message:send`, {
      message: { messageId, role: "ROLE_USER", parts: [{ text }] },
      configuration: { returnImmediately: true },
    });
    return sent.task?.id ?? "";
  }

  /** watch tells of a team until signal is aborted. */
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
    const headers = new Headers(init.headers);
    headers.set("A2A-Version", "1.0");
    if (this.key) headers.set("Authorization", `Bearer ${this.key}`);
    const response = await fetch(this.base + path, { cache: "no-store", ...init, headers }).catch((e: unknown) => {
      if (e instanceof TypeError) throw new APIError(0, "UNAVAILABLE", `The server at ${this.base} cannot be reached. Check that it runs, then try again.`);
      throw e; // an abort
    });
    if (response.ok) return response;
    if (response.status === 401) this.unauthenticated();
    throw await failure(response);
  }
}

/** failure reads the error of a response. */
async function failure(response: Response): Promise<APIError> {
  interface Body {
    error?: { message?: string; details?: { reason?: string }[] };
  }
  const body: Body = await response.json().catch(() => ({}));
  const reason = body.error?.details?.find((d) => d.reason)?.reason ?? "";
  return new APIError(response.status, reason, body.error?.message ?? `the server answered ${response.status}`);
}

/** newID is an id of 128 random bits; crypto.randomUUID is not there on plain HTTP. */
export function newID(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
