// The JSON of the server that the page reads. proto/team/v1/monitor.proto and event.proto
// document the fields. 64-bit numbers are strings, and empty values are omitted.

export interface Message {
  messageId?: string;
  role?: string;
  parts?: Part[];
}

export interface Part {
  text?: string;
  data?: unknown;
  url?: string;
  filename?: string;
}

export interface Spent {
  inputTokens?: string;
  outputTokens?: string;
  costMicros?: string;
  estimated?: boolean;
  modelCalls?: string;
  toolCalls?: string;
  cachedInputTokens?: string;
  cacheWriteTokens?: string;
  reasoningTokens?: string;
}

export interface CostShare {
  key?: string;
  spent?: Spent;
  estimated?: Spent;
  claimed?: Spent;
}

export interface Costs {
  shares?: CostShare[];
  omitted?: number;
  total?: CostShare;
  since: string;
  until: string;
}

export interface TaskCounts {
  total?: string;
  pending?: string;
  active?: string;
  waiting?: string;
  done?: string;
  failed?: string;
  canceled?: string;
}

export interface TeamSnapshot {
  teamId: string;
  name?: string;
  description?: string;
  mode?: string;
  revision?: string;
  healthy?: boolean;
  usable?: boolean;
  detail?: string;
  members?: MemberStatus[];
  counters?: TeamCounters;
  active?: ActiveTask[];
  questions?: OpenQuestion[];
  time?: string;
}

export interface TeamCounters {
  memberCount?: number;
  tasks?: TaskCounts;
  runs?: TaskCounts;
  spent?: Spent;
  runP50?: string;
  runP95?: string;
  partial?: boolean;
}

export interface MemberStatus {
  id: string;
  role?: string;
  activity?: string;
  healthy?: boolean;
  detail?: string;
  disabled?: boolean;
  breaker?: string;
  tasks?: TaskCounts;
  latencyP50?: string;
  latencyP95?: string;
  spent?: Spent;
}

export interface ActiveTask {
  taskId: string;
  contextId?: string;
  state?: string;
  text?: string;
  since?: string;
  workers?: Worker[];
  waiting?: boolean;
  cancelRequested?: boolean;
  spent?: Spent;
  /** If it is work for another team: the task that it is part of, and the agent of that task. */
  rootTaskId?: string;
  rootAgentId?: string;
}

export interface Worker {
  taskId: string;
  path?: string;
  kind?: string;
  name?: string;
  text?: string;
  since?: string;
  state?: string;
}

export interface OpenQuestion {
  taskId: string;
  agentId?: string;
  question: Question;
  since?: string;
  byRole?: boolean;
}

export interface Question {
  question: string;
  delegationId?: string;
  path?: string;
  kind?: string;
  message?: Message;
  roles?: string[];
  expires?: string;
  approval?: ApprovalRequest;
}

/** ApprovalRequest is a tool call, the task of a member, or a plan, that people decide about. */
export interface ApprovalRequest {
  tool?: string;
  member?: string;
  arguments?: string;
  /** The rules of a plan; set if arguments is a plan. */
  plan?: object;
}

/** Plan is a plan that a model has made for a workflow. */
export interface Plan {
  steps?: { id?: string; member?: string; task?: string; after?: string[]; when?: string }[];
}

export interface WatchTeamResponse {
  cursor?: string;
  snapshot?: TeamSnapshot;
  event?: MonitorEvent;
  update?: TeamSnapshot;
}

export interface MonitorEvent {
  rootTaskId: string;
  taskId: string;
  event: Event;
}

/** Event has one more field, whose name is the kind of event. */
export interface Event {
  seq: string;
  time?: string;
  scope?: string;
  agent?: string;
  accepted?: { message?: Message };
  decided?: { steps?: Step[]; reason?: string; rule?: string; reply?: unknown; ask?: Message; transfer?: Transfer };
  started?: { attempt?: number; model?: string };
  retried?: { attempt?: number; error?: Failure };
  ended?: { outcome?: string; error?: Failure; spent?: Spent };
  spawned?: { taskId?: string };
  bound?: { peer?: string };
  asked?: { question?: string; message?: Message };
  answered?: { message?: Message; by?: string };
  received?: { message?: Message };
  commanded?: { command?: string; by?: string; reason?: string };
  expired?: { limit?: string };
  observed?: object;
  checked?: { by?: string; blocked?: boolean; error?: Failure };
  artifact?: object;
  delta?: { text?: string; restart?: boolean };
  progress?: { message?: Message };
  noted?: { code?: string; text?: string };
  waiting?: { paused?: boolean };
}

export interface Step {
  id: string;
  kind?: string;
  member?: string;
  name?: string;
}

export interface Transfer {
  to?: string;
  message?: string;
}

export interface Failure {
  reason?: string;
  message?: string;
}

export interface Trace {
  taskId: string;
  agentId?: string;
  state?: string;
  seq?: string;
  step?: TraceStep;
  questions?: OpenQuestion[];
  cost?: { spent?: Spent };
  engineUrl?: string;
}

export interface TraceStep {
  id: string;
  path?: string;
  kind?: string;
  member?: string;
  name?: string;
  input?: Message;
  state?: string;
  outcome?: string;
  reply?: Message;
  turn?: { text?: string; toolCalls?: { name?: string; arguments?: string }[]; model?: string };
  tool?: { text?: string; isError?: boolean };
  transfer?: Transfer;
  error?: Failure;
  warnings?: string[];
  attempts?: TraceAttempt[];
  decided?: string;
  started?: string;
  ended?: string;
  spent?: Spent;
  decisions?: TraceDecision[];
  steps?: TraceStep[];
  questions?: TraceQuestion[];
  notes?: Event[];
  spawnedTaskId?: string;
  bound?: { peer?: string };
}

export interface TraceAttempt {
  attempt?: number;
  model?: string;
  endpoint?: string;
  error?: Failure;
}

export interface TraceDecision {
  seq: string;
  time?: string;
  reason?: string;
  rule?: string;
  values?: Record<string, unknown>;
  steps?: string[];
  finished?: boolean;
  ask?: Message;
  cancel?: string[];
  plan?: Plan;
}

export interface TraceQuestion {
  question: string;
  kind?: string;
  message?: Message;
  roles?: string[];
  answer?: Message;
  by?: string;
  closed?: string;
  approval?: ApprovalRequest;
}

/** Choice is a team or an agent that can be watched. */
export interface Choice {
  id: string;
  name: string;
  team: boolean;
}

export interface Task {
  id: string;
  status?: { state?: string; timestamp?: string };
  history?: Message[];
}

/** Halt is a halt in force. */
export interface Halt {
  kind: string;
  /** Absent for a halt of the whole server. */
  name?: string;
  /** Of a team or an agent that was made by the API: the account that has made it. */
  account?: string;
  reason: string;
  by: string;
  at: string;
  pause?: boolean;
}

/** HaltReceipt says what a halt has stopped. */
export interface HaltReceipt {
  tasks?: { taskId: string; agent?: string; receipt?: { entries?: { agent?: string; remoteTaskId?: string; unconfirmed?: boolean }[] } }[];
  total?: number;
  stragglers?: string[];
}
