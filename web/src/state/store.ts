import type { MonitorEvent, TeamSnapshot, WatchTeamResponse } from "../api/types";

/** Row is a line in the list of events; null marks that events may be missing. */
export type Row = { key: string; event: MonitorEvent } | { key: string; event: null };

/** State is the state of the watched team. */
export interface State {
  connection: "connecting" | "live" | "reconnecting" | "refused";
  /** Why the team cannot be watched. */
  refusal: string;
  team: TeamSnapshot | null;
  /** The newest events, oldest first, at most maxRows. */
  rows: Row[];
  /** The number of events received. */
  total: number;
  /** The end of the text that open steps have streamed, by task ID. */
  said: ReadonlyMap<string, string>;
  /** The sequence number of the last event of recent tasks. */
  heard: ReadonlyMap<string, string>;
  /** How often the stream was opened. */
  connections: number;
}

export type Action =
  | { kind: "messages"; messages: WatchTeamResponse[] }
  | { kind: "opened"; open: boolean }
  | { kind: "refused"; text: string }
  | { kind: "left" };

/** Limits of the state: events, characters per step, and tasks. */
export const maxRows = 500;
export const maxSaid = 1_000;
const maxTasks = 200;

export const initial: State = {
  connection: "connecting",
  refusal: "",
  team: null,
  rows: [],
  total: 0,
  said: new Map(),
  heard: new Map(),
  connections: 0,
};

/** reduce returns the state after an action. */
export function reduce(state: State, action: Action): State {
  switch (action.kind) {
    case "left":
      return initial;
    case "refused":
      return { ...state, connection: "refused", refusal: action.text };
    case "opened":
      if (!action.open) return { ...state, connection: "reconnecting" };
      return { ...state, connection: "live", connections: state.connections + 1 };
    case "messages":
      return receive(state, action.messages);
  }
}

/** receive returns the state after messages, which often arrive in batches. */
function receive(state: State, messages: WatchTeamResponse[]): State {
  const next = { ...state, rows: [...state.rows], said: new Map(state.said), heard: new Map(state.heard) };
  for (const m of messages) {
    next.team = m.snapshot ?? m.update ?? next.team;
    if (m.snapshot && next.rows.length > 0) next.rows.push({ key: `gap-${next.total}-${next.connections}`, event: null });
    if (m.event) add(next, m.event);
  }
  next.rows = next.rows.slice(-maxRows);
  return next;
}

interface Draft extends State {
  said: Map<string, string>;
  heard: Map<string, string>;
}

function add(next: Draft, m: MonitorEvent): void {
  next.total++;
  next.rows.push({ key: `${m.rootTaskId}:${m.event.seq}`, event: m });
  newest(next.heard, m.rootTaskId, m.event.seq);
  if (m.event.delta) {
    const before = m.event.delta.restart ? "" : (next.said.get(m.taskId) ?? "");
    newest(next.said, m.taskId, (before + (m.event.delta.text ?? "")).slice(-maxSaid));
  }
  if (m.event.ended) next.said.delete(m.taskId);
}

/** newest adds an entry at the end and removes the first one if there are more than maxTasks. */
function newest(all: Map<string, string>, key: string, value: string): void {
  all.delete(key);
  all.set(key, value);
  const [oldest] = all.keys();
  if (all.size > maxTasks && oldest !== undefined) all.delete(oldest);
}
