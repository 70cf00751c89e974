import { useRef } from "preact/hooks";
import type { Client } from "../api/client";
import type { ActiveTask, TeamSnapshot, Worker } from "../api/types";
import { format } from "../state/link";
import { useNow } from "../state/useNow";
import { find, neighbor, useSuccessor } from "../state/useSuccessor";
import { between, brief, clip, facts, spent, stepName } from "../text";
import { CancelButton } from "./CancelButton";
import { Empty } from "./Empty";
import { TaskState } from "./TaskState";

interface Props {
  client: Client;
  team: TeamSnapshot;
  chosen: string;
  open: (task: string) => void;
  base: string;
}

/** ActiveTasks lists the tasks that have not ended, with the agents that work on them. */
export function ActiveTasks({ client, team, chosen, open, base }: Props) {
  const tasks = team.active ?? [];
  const now = useNow(tasks.length > 0);
  return (
    <section aria-labelledby="active-title" class="panel">
      <h2 id="active-title">Active tasks</h2>
      {tasks.length === 0 && (
        <Empty say="No active tasks." command={`team-server run ${team.teamId} "Write about tides"`} base={base} />
      )}
      <ul class="tasks" id="active">
        {tasks.map((t) => (
          <Active key={t.taskId} client={client} team={team.teamId} task={t} chosen={t.taskId === chosen} open={open} now={now} />
        ))}
      </ul>
    </section>
  );
}

/** Active is a task that has not ended: one that was sent to the team, or the team's part of another team's task. */
function Active(props: { client: Client; team: string; task: ActiveTask; chosen: boolean; open: (task: string) => void; now: number }) {
  const { client, team, task: t, chosen, open, now } = props;
  const item = useRef<HTMLLIElement>(null);
  useSuccessor(item, (from) => neighbor(from, "button.row") ?? find("#trace summary"));
  return (
    <li ref={item} data-task={t.taskId} class={chosen ? "chosen" : ""}>
      <button class="row" aria-current={chosen} onClick={() => open(t.taskId)}>
        <span class="line">
          <TaskState state={t.waiting ? "STATE_WAITING" : (t.state ?? "")} />
          <span class="dim">{facts(between(t.since, undefined, now), spent(t.spent))}</span>
          <code>{brief(t.taskId)}</code>
        </span>
        <span class="text">{t.text || "no text"}</span>
        <Workers task={t} now={now} />
      </button>
      <CancelButton client={client} team={t.rootAgentId ?? team} task={t.taskId} requested={t.cancelRequested ?? false} />
      {t.rootTaskId && (
        <p class="origin">
          for <a href={format({ team: t.rootAgentId ?? team, task: t.rootTaskId })}>{`${t.rootAgentId} ${brief(t.rootTaskId)}`}</a>
        </p>
      )}
    </li>
  );
}

/** doing returns the kind or the name of a step, "" for an ordinary delegation. */
function doing(w: Worker): string {
  return ["KIND_MODEL", "KIND_TOOL", "KIND_HUMAN"].includes(w.kind ?? "") ? stepName(w) : w.name ? `(${w.name})` : "";
}

/** Workers lists the agents that work on a task: only the innermost ones, not the teams around them. */
function Workers({ task, now }: { task: ActiveTask; now: number }) {
  const all = task.workers ?? [];
  const inner = all.filter((w) => !all.some((other) => other.taskId !== w.taskId && other.taskId.startsWith(`${w.taskId}.`)));
  return (
    <>
      {inner.map((w) => (
        <span key={w.taskId} class="worker">
          <strong>{w.path}</strong> {doing(w)} <span class="dim">{between(w.since, undefined, now)}</span> {clip(w.text ?? "", 80)}
        </span>
      ))}
    </>
  );
}
