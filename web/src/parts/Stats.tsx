import type { TaskCounts, TeamSnapshot } from "../api/types";
import { count, money, seconds, short, tokens } from "../text";

/** Stats shows the counters of a team: its tasks, and below each number that of its members' steps. */
export function Stats({ team }: { team: TeamSnapshot }) {
  const c = team.counters ?? {};
  const counted = (name: string, of: keyof TaskCounts) => (
    <Cell
      name={name}
      value={count(c.runs?.[of])}
      more={`${count(c.tasks?.[of])} ${c.tasks?.[of] === "1" ? "step" : "steps"}`}
      alarm={of === "failed" && Number(c.runs?.failed ?? 0) > 0}
    />
  );
  return (
    <section aria-labelledby="stats-title">
      <h2 id="stats-title" class="unseen">
Statistics
      </h2>
      <dl class="stats">
        <Cell
          name="members"
          value={count(c.memberCount)}
          more={team.healthy ? "healthy" : team.usable ? "degraded" : "not usable"}
          alarm={!team.healthy}
        />
        {counted(c.partial ? "recent tasks" : "tasks", "total")}
        {counted("done", "done")}
        {counted("active", "active")}
        {counted("pending", "pending")}
        {counted("failed", "failed")}
        <Cell name="p95" value={seconds(c.runP95)} more={`p50 ${seconds(c.runP50)}`} />
        <Cell name="tokens" value={short(tokens(c.spent))} more={money(c.spent) || "no cost"} />
      </dl>
    </section>
  );
}

function Cell({ name, value, more, alarm }: { name: string; value: string; more: string; alarm?: boolean }) {
  return (
    <div class={alarm ? "cell alarm" : "cell"} data-stat={name}>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        <span>{more}</span>
      </dd>
    </div>
  );
}
