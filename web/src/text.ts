// The texts of the page, and the formats of numbers, times and IDs.
import type { Event, Failure, Halt, HaltReceipt, Message, Spent } from "./api/types";

/** words returns the text of a message. Parts that are not text are shown as JSON or by their name. */
export function words(m: Message | undefined): string {
  return (m?.parts ?? [])
    .map((p) => p.text ?? (p.data !== undefined ? JSON.stringify(p.data) : (p.filename ?? p.url ?? "file")))
    .join("\n");
}

/** asked returns the text of a question without its data. */
export function asked(m: Message | undefined): string {
  return (m?.parts ?? []).flatMap((p) => p.text ?? []).join("\n") || "An answer is required.";
}

/** clip shortens a text to one line of max characters. */
export function clip(text: string, max = 120): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

/** count formats a number; a missing one is 0. */
export function count(n: string | number | undefined): string {
  return Number(n ?? 0).toLocaleString("en-US");
}

/** short formats a large number in few characters, such as 12.3k. */
export function short(n: number): string {
  if (n < 10_000) return n.toLocaleString("en-US");
  if (n < 1_000_000) return `${(n / 1_000).toFixed(n < 100_000 ? 1 : 0)}k`;
  return `${(n / 1_000_000).toFixed(1)}M`;
}

export function tokens(s: Spent | undefined): number {
  return Number(s?.inputTokens ?? 0) + Number(s?.outputTokens ?? 0);
}

/** about is the mark of amounts that include estimates. */
export function about(s: Spent | undefined): string {
  return s?.estimated ? "~" : "";
}

/** dollars formats the cost in dollars. */
export function dollars(s: Spent | undefined): string {
  const micros = Number(s?.costMicros ?? 0);
  return `$${(micros / 1e6).toFixed(micros === 0 ? 0 : micros < 10_000 ? 6 : micros < 1e6 ? 4 : 2)}`;
}

/** money is like dollars, with a mark for estimates, and "" for no cost. */
export function money(s: Spent | undefined): string {
  return Number(s?.costMicros ?? 0) === 0 ? "" : `${about(s)}${dollars(s)}`;
}

/** spent formats tokens and cost, "" for none. */
export function spent(s: Spent | undefined): string {
  const t = tokens(s);
  return facts(t ? `${about(s)}${short(t)} tok` : "", money(s));
}

/** seconds formats a duration of ProtoJSON, such as "1.5s". */
export function seconds(d: string | undefined): string {
  return d === undefined ? "–" : span(Number.parseFloat(d) * 1_000);
}

/** span formats a duration in milliseconds. */
export function span(ms: number): string {
  if (ms < 1) return "<1ms";
  if (ms < 100) return `${Math.round(ms)}ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)}s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes}m ${Math.floor((ms % 60_000) / 1_000)}s` : `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
}

/** between formats the duration from one time to another, or to now. */
export function between(from: string | undefined, to: string | undefined, now: number): string {
  return from ? span((to ? Date.parse(to) : now) - Date.parse(from)) : "";
}

/** minute formats a time with its date, to the minute. */
export function minute(time: string): string {
  return new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** minuteUTC formats a time with its date in UTC, to the minute. */
export function minuteUTC(time: string): string {
  return `${new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" })} UTC`;
}

/** clock formats the time of day, with the date unless it is today. */
export function clock(time: string | undefined, now = new Date()): string {
  if (!time) return "";
  const at = new Date(time);
  if (at.toDateString() === now.toDateString()) return at.toLocaleTimeString("en-GB");
  const year = at.getFullYear() === now.getFullYear() ? {} : ({ year: "numeric" } as const);
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...year })} ${at.toLocaleTimeString("en-GB")}`;
}

/** facts joins short texts to one line, without empty ones. */
export function facts(...list: (string | undefined)[]): string {
  return list.filter(Boolean).join(" ·\u00a0"); // no line break after the dot
}

/** brief shortens an ID to its end, where IDs differ most. */
export function brief(id: string): string {
  const [root = "", scope] = id.split("~");
  return root.slice(-8) + (scope ? `~${scope}` : "");
}

/** within reports whether a task ID is top or belongs to a task below top. */
export function within(id: string, top: string): boolean {
  return id === top || id.startsWith(top.includes("~") ? `${top}.` : `${top}~`);
}

/** plain converts an enum value to a word: STATE_RUNNING to "running". */
export function plain(value: string | undefined, prefix: string): string {
  return (value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");
}

export function failure(f: Failure | undefined): string {
  return [f?.reason, f?.message].filter(Boolean).join(": ");
}

/** Level is the importance of an event. */
export type Level = "detail" | "normal" | "problem";

/** EventText is the text of an event with its level. */
export interface EventText {
  level: Level;
  text: string;
}

const bad = ["OUTCOME_FAILED", "OUTCOME_TIMED_OUT", "OUTCOME_REJECTED"];

/** describe returns the text and the level of an event. */
export function describe(e: Event): EventText {
  const at = (level: Level, ...parts: (string | false | undefined)[]): EventText => ({ level, text: parts.filter(Boolean).join(" ") });
  if (e.accepted) return at("normal", "task:", clip(words(e.accepted.message)));
  if (e.decided) return at("normal", decision(e.decided));
  if (e.started)
    return at(
      "normal",
      "started",
      (e.started.attempt ?? 1) > 1 && `(attempt ${e.started.attempt})`,
      e.started.model && `with ${e.started.model}`,
    );
  if (e.retried) return at("problem", `attempt ${e.retried.attempt ?? 1} failed, retrying:`, failure(e.retried.error));
  if (e.ended)
    return at(
      bad.includes(e.ended.outcome ?? "") ? "problem" : "normal",
      plain(e.ended.outcome, "OUTCOME_"),
      spent(e.ended.spent),
      failure(e.ended.error),
    );
  if (e.spawned) return at("normal", "continues as task", brief(e.spawned.taskId ?? ""));
  if (e.bound) return at("normal", "runs at", e.bound.peer);
  if (e.asked) return at("normal", "asks:", clip(asked(e.asked.message)));
  if (e.answered) return at("normal", "answer:", clip(words(e.answered.message)), e.answered.by && `(by ${e.answered.by})`);
  if (e.received) return at("normal", "message:", clip(words(e.received.message)));
  if (e.commanded) return at("normal", "command:", plain(e.commanded.command, "COMMAND_"), e.commanded.reason);
  if (e.expired) return at("problem", "timeout:", e.expired.limit);
  if (e.checked)
    return at(
      e.checked.error ? "problem" : "normal",
      "checked by",
      e.checked.by,
      e.checked.blocked && "and blocked",
      failure(e.checked.error),
    );
  if (e.progress) return at("normal", clip(words(e.progress.message)));
  if (e.noted) return at(e.noted.code?.startsWith("MEMBER_") ? "normal" : "detail", e.noted.text || e.noted.code);
  if (e.waiting) return at("normal", e.waiting.paused ? "paused" : "waiting for people");
  if (e.delta) return at("detail", "says:", clip(e.delta.text ?? ""));
  if (e.observed) return at("detail", "checked its members");
  if (e.artifact) return at("detail", "sent a part of its result");
  return at("detail", Object.keys(e).find((k) => !["seq", "time", "scope", "agent"].includes(k)) ?? "event");
}

function decision(d: NonNullable<Event["decided"]>): string {
  const to =
    (d.steps ?? []).map(stepName).join(", ") ||
    (d.transfer ? `hand over to ${d.transfer.to}` : d.ask ? "ask people" : d.reply ? "answer" : "");
  return [d.rule ? `rule "${d.rule}"` : "decides", to && `→ ${to}`, d.reason && `because ${clip(d.reason)}`].filter(Boolean).join(" ");
}

/** stepName returns the member or kind of a step, with the name of a workflow step. */
export function stepName(s: { member?: string; name?: string; kind?: string }): string {
  const who = s.member || kindName(s.kind);
  return s.name && s.name !== who ? `${who} (${s.name})` : who;
}

/** kindName returns the kind of a step in words. */
export function kindName(kind: string | undefined): string {
  const known: Record<string, string> = {
    KIND_MODEL: "model",
    KIND_TOOL: "tool",
    KIND_HUMAN: "people",
    KIND_JUDGE: "judge",
    KIND_ROUND: "round",
    KIND_TRANSFER: "hand-over",
  };
  return known[kind ?? ""] ?? plain(kind, "KIND_");
}

/** halted names what a halt covers. */
export function halted(h: Halt): string {
  const kind = h.kind.replace("HALT_KIND_", "").toLowerCase();
  if (!h.name) return `the ${kind}`;
  return `${kind} ${h.name}${h.account ? ` of account ${h.account}` : ""}`;
}

/** stopped says what a halt has stopped, and what may still be running. */
export function stopped(r: HaltReceipt): string {
  const elsewhere = (r.tasks ?? []).flatMap((t) => t.receipt?.entries ?? []).filter((e) => e.unconfirmed);
  return [
    `Halted. ${r.total ?? 0} ${r.total === 1 ? "task was" : "tasks were"} stopped.`,
    elsewhere.length > 0 && `May still be working on other servers: ${elsewhere.map((e) => `${e.agent ?? ""} (task ${e.remoteTaskId || "unknown"})`).join(", ")}.`,
    r.stragglers?.length && `These servers have not confirmed the halt: ${r.stragglers.join(", ")}.`,
  ]
    .filter(Boolean)
    .join(" ");
}
