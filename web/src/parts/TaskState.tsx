import { plain } from "../text";

const marks: Record<string, string> = {
  submitted: "○",
  pending: "○",
  working: "●",
  running: "●",
  retrying: "↻",
  waiting: "?",
  "input required": "?",
  "auth required": "?",
  completed: "✓",
  succeeded: "✓",
  empty: "✓",
  failed: "✕",
  "timed out": "✕",
  rejected: "✕",
  canceled: "–",
  skipped: "–",
};

/** TaskState shows the state of a task or step as a symbol and a word. */
export function TaskState({ state }: { state: string }) {
  const word = plain(state, /^(TASK_STATE|STATE|OUTCOME)_/.exec(state)?.[0] ?? "");
  return (
    <span class={`state ${word.replaceAll(" ", "-")}`}>
      <span aria-hidden="true">{marks[word] ?? "·"}</span> {word}
    </span>
  );
}
