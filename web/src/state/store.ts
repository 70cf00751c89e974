import type { MonitorEvent, TeamSnapshot, WatchTeamResponse } from "../api/types";

/** Row is a line of the list of events. */
export type Row = { key: string; event: MonitorEvent } | { key: string; event: null }; // null: some may be missing here

/** State is what is known of the team that is watched. */
export interface State {
  connection: "connecting" | "live" | "reconnecting" | "refused";
  /** Why the team cannot be watched. */
  refusal: string;
  team: TeamSnapshot | null;
  /** The newest events, oldest first, at most maxRows. */
  rows: Row[];
  /** How many events there were. */
  total: number;
  /** The text that open steps have streamed so far, by their id. */
  said: ReadonlyMap<string, string>;
  /** The last event of each task that was heard of lately. */
  heard: ReadonlyMap<string, string>;
  /** How often the stream was opened. */
  connections: number;
}

export type Action =
  | { kind: "messages"; messages: WatchTeamResponse[] }
  | { kind: "opened"; open: boolean }
  | { kind: "refused"; text: string }
  | { kind: "left" };

/** Bounds of what is kept. */
export const maxRows = 500;
export const maxSaid = 1_000; // characters of a step
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

/** reduce is the state after an action. */
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
      return told(state, action.messages);
  }
}

/** told is the state after messages, which often come many at once. */
function told(state: State, messages: WatchTeamResponse[]): State {
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

/** newest puts an entry last, and drops the first one when there are too many. */
function newest(all: Map<string, string>, key: string, value: string): void {
  all.delete(key);
  all.set(key, value);
  const [oldest] = all.keys();
  if (all.size > maxTasks && oldest !== undefined) all.delete(oldest);
}
