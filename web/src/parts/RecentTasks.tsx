import { useEffect, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Task, TeamSnapshot } from "../api/types";
import { brief, clip, clock, words } from "../text";
import { TaskState } from "./TaskState";

interface Props {
  client: Client;
  team: TeamSnapshot;
  connections: number;
  chosen: string;
  open: (task: string) => void;
}

/** RecentTasks lists the newest tasks that have ended. */
export function RecentTasks({ client, team, connections, chosen, open }: Props) {
  const [tasks, setTasks] = useState<Task[]>([]);
  const runs = team.counters?.runs;
  const ended = [runs?.done, runs?.failed, runs?.canceled].join(" ");
  useEffect(() => {
    let stale = false;
    void client.recent(team.teamId).then(
      (all) => stale || setTasks(all),
      () => undefined, // Connection shows that the server cannot be reached
    );
    return () => {
      stale = true;
    };
  }, [client, team.teamId, ended, connections]);
  const active = new Set((team.active ?? []).map((t) => t.taskId));
  const shown = tasks.filter((t) => !active.has(t.id) && /COMPLETED|FAILED|CANCELED|REJECTED/.test(t.status?.state ?? ""));
  if (shown.length === 0) return null;
  return (
    <section aria-labelledby="recent-title" class="panel">
      <h2 id="recent-title">Recent tasks</h2>
      <ul class="tasks" id="recent">
        {shown.map((t) => (
          <li key={t.id} data-task={t.id} class={t.id === chosen ? "chosen" : ""}>
            <button class="row" aria-current={t.id === chosen} onClick={() => open(t.id)}>
              <span class="line">
                <TaskState state={t.status?.state ?? ""} />
                <span class="dim">{clock(t.status?.timestamp)}</span>
                <code>{brief(t.id)}</code>
              </span>
              <span class="text">{clip(words(t.history?.[0])) || "no text"}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
