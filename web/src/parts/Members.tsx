import type { MemberStatus } from "../api/types";
import { count, facts, plain, seconds, spent } from "../text";

/** Members shows the status of a team's members and their work for the team. */
export function Members({ members }: { members: MemberStatus[] }) {
  if (members.length === 0) return null;
  return (
    <section aria-labelledby="members-title" class="panel">
      <h2 id="members-title">Members</h2>
      <ul class="members">
        {members.map((m) => (
          <li key={`${m.role} ${m.id}`} data-member={m.id}>
            <strong>{m.id}</strong> {m.role === "ROLE_LEAD" && <span class="badge">leader</span>}{" "}
            <span class={`activity ${plain(m.activity, "ACTIVITY_")}`}>{plain(m.activity, "ACTIVITY_")}</span> <Trouble member={m} />
            <span class="dim">{facts(done(m), m.latencyP95 && `p95 ${seconds(m.latencyP95)}`, spent(m.spent))}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** done returns the numbers of a member's tasks, "" for the leader, which has none. */
function done(m: MemberStatus): string {
  if (m.role === "ROLE_LEAD") return "";
  return `${count(m.tasks?.done)} done, ${count(m.tasks?.active)} active, ${count(m.tasks?.failed)} failed`;
}

/** Trouble shows why a member cannot work, or might fail. */
function Trouble({ member: m }: { member: MemberStatus }) {
  const broken = m.breaker && m.breaker !== "BREAKER_CLOSED" ? `breaker ${plain(m.breaker, "BREAKER_")}` : "";
  const text = [m.disabled ? "disabled" : m.healthy ? "" : m.detail || "unhealthy", broken].filter(Boolean).join(", ");
  return text ? <span class="alarm">{text} </span> : null;
}
