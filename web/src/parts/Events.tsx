import { useState } from "preact/hooks";
import { maxRows, type Row } from "../state/store";
import { format } from "../state/link";
import { brief, clock, count, describe, type Level } from "../text";
import { Empty } from "./Empty";

const levels: Record<Level, string> = { detail: "All events", normal: "Main events", problem: "Problems" };

/** Events lists the events in the tasks of a team, the newest first. */
export function Events({ rows, total, team, base }: { rows: Row[]; total: number; team: string; base: string }) {
  const [level, setLevel] = useState<Level>("normal");
  const [agent, setAgent] = useState("");
  const [held, setHeld] = useState<{ rows: Row[]; total: number } | null>(null); // the list while it is paused
  const shown = held?.rows ?? rows;
  const agents = [...new Set(shown.flatMap((r) => r.event?.event.agent ?? []))].sort();
  const wanted = shown.filter((r) => !r.event || ((!agent || r.event.event.agent === agent) && visible(describe(r.event.event).level, level)));
  return (
    <section aria-labelledby="events-title" class="panel events">
      <div class="line">
        <h2 id="events-title">Events</h2>
        <button aria-pressed={held !== null} onClick={() => setHeld(held ? null : { rows, total })}>
          {held ? `Resume (${count(total - held.total)} new)` : "Pause"}
        </button>
        <label>
          Show{" "}
          <select id="level" value={level} onChange={(e) => setLevel(e.currentTarget.value as Level)}>
            {Object.entries(levels).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          of{" "}
          <select id="agent" value={agent} onChange={(e) => setAgent(e.currentTarget.value)}>
            <option value="">all agents</option>
            {agents.map((a) => (
              <option key={a} value={a}>
                {a}
              </option>
            ))}
          </select>
        </label>
        <span class="dim" id="total" data-total={total}>
          {count(total)} {total > maxRows ? `events, the last ${maxRows} shown` : "events"}
        </span>
      </div>
      {wanted.length === 0 &&
        (total === 0 ? (
          <Empty
            say="No events since the page was opened."
            command={`team-server run ${team} "Write about tides"`}
            base={base}
          />
        ) : (
          <Empty say="No matching events." />
        ))}
      <ol class="scroll" id="events" tabIndex={0} aria-label="events, the newest first">
        {wanted.toReversed().map((r) => (r.event ? <Line key={r.key} row={r} team={team} /> : <Gap key={r.key} />))}
      </ol>
    </section>
  );
}

function visible(of: Level, wanted: Level): boolean {
  return wanted === "detail" || of === wanted || (wanted === "normal" && of === "problem");
}

/** Line shows an event. Tab skips its link, because there may be 500 lines and the tasks are listed above. */
function Line({ row, team }: { row: Row & { event: object }; team: string }) {
  const { event, rootTaskId } = row.event;
  const { level, text } = describe(event);
  return (
    <li class={level} data-event={row.key}>
      <time dateTime={event.time}>{clock(event.time)}</time> <strong>{event.agent}</strong> <span>{text}</span>{" "}
      <a href={format({ team, task: rootTaskId })} tabIndex={-1}>
        <code>{brief(rootTaskId)}</code>
      </a>
    </li>
  );
}

function Gap() {
  return <li class="gap">Some events may be missing here: the server could not continue from the last event.</li>;
}
