import { useEffect, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Costs as Answer, CostShare, TeamSnapshot } from "../api/types";
import { about, count, dollars, minute, minuteUTC } from "../text";
import { Empty } from "./Empty";

const groups = { MEMBER: "agent", TEAM: "team", MODEL: "model", ACCOUNT: "account", DAY: "day (UTC)" };
const periods = { 1: "24 hours", 7: "7 days", 30: "30 days", 400: "400 days" };
const none: Partial<Record<string, string>> = { MODEL: "no model of this server" }; // the name of a group without one

const hourly = 32; // days for which the server keeps costs by the hour, and not by the day in UTC

/** period says which period an answer covers; one by day in UTC. */
const period = ({ since, until }: Answer, utc: boolean) => {
  const text = utc ? minuteUTC : minute;
  return `${text(since)} to ${text(until)}`;
};

/** Costs shows what tasks have spent, of all teams or of one. It is read when it is opened, and when a choice changes. */
export function Costs({ client, team, base }: { client: Client; team: TeamSnapshot; base: string }) {
  const [open, setOpen] = useState(false);
  const [by, setBy] = useState("MEMBER");
  const [days, setDays] = useState(1);
  const [only, setOnly] = useState("");
  const [reads, setReads] = useState(0);
  const [shown, setShown] = useState<{ by: string; days: number; costs: Answer } | null>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!open) return;
    let stale = false;
    setBusy(true);
    void client
      .costs(by, days, only)
      .then(
        (costs) => {
          if (stale) return;
          setShown({ by, days, costs });
          setError("");
        },
        (e: unknown) => {
          if (stale) return;
          setShown(null); // what is shown is of another choice, key or time
          setError(e instanceof Error ? e.message : String(e));
        },
      )
      .finally(() => stale || setBusy(false));
    return () => {
      stale = true;
    };
  }, [client, open, by, days, only, reads]);
  return (
    <details class="panel costs" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>Costs</summary>
      <div class="line">
        <label>
          By{" "}
          <select id="costs-by" value={by} onChange={(e) => setBy(e.currentTarget.value)}>
            {Object.entries(groups).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          of the last{" "}
          <select id="costs-days" value={days} onChange={(e) => setDays(Number(e.currentTarget.value))}>
            {Object.entries(periods).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          in{" "}
          <select id="costs-team" value={only} onChange={(e) => setOnly(e.currentTarget.value)}>
            <option value="">all teams</option>
            <option value={team.teamId}>{team.name || team.teamId}</option>
          </select>
        </label>
        <button aria-disabled={busy} onClick={() => busy || setReads(reads + 1)}>
          Refresh
        </button>
        <span class="dim" role="status">
          {busy ? "Reading…" : shown && period(shown.costs, shown.by === "DAY" || shown.days > hourly)}
        </span>
      </div>
      {error && <p role="alert">{error}</p>}
      {shown && !shown.costs.shares?.length && (
        <Empty say="Nothing was spent in this period." command={`team-server run ${team.teamId} "Write about tides"`} base={base} />
      )}
      {shown && shown.costs.shares && <Table by={shown.by} costs={shown.costs} shares={shown.costs.shares} />}
    </details>
  );
}

/** Table shows the costs of each group, and their total. */
function Table({ by, costs, shares }: { by: string; costs: Answer; shares: CostShare[] }) {
  const name = groups[by as keyof typeof groups];
  return (
    <div class="sideways" tabIndex={0} role="region" aria-label={`costs by ${name}`}>
      <table>
        <caption>Costs by {name}</caption>
        <thead>
          <tr>
            {[name, "cost", "of it estimated", "of it claimed", "input", "cached", "cache writes", "output", "reasoning", "model calls", "tool calls"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shares.map((s) => (
            <Row key={s.key ?? ""} share={s} name={s.key || (none[by] ?? "unknown")} />
          ))}
          {costs.omitted && (
            <tr>
              <th scope="row" colSpan={11} class="dim">
                and {count(costs.omitted)} more with lower costs
              </th>
            </tr>
          )}
        </tbody>
        <tfoot>
          <Row share={costs.total ?? {}} name="total" />
        </tfoot>
      </table>
    </div>
  );
}

function Row({ share: { spent, estimated, claimed }, name }: { share: CostShare; name: string }) {
  const mark = about(spent);
  const cells = [
    `${mark}${dollars(spent)}`,
    estimated ? `~${dollars(estimated)}` : "",
    claimed ? dollars(claimed) : "",
    `${mark}${count(spent?.inputTokens)}`,
    count(spent?.cachedInputTokens),
    count(spent?.cacheWriteTokens),
    `${mark}${count(spent?.outputTokens)}`,
    count(spent?.reasoningTokens),
    count(spent?.modelCalls),
    count(spent?.toolCalls),
  ];
  return (
    <tr data-cost={name}>
      <th scope="row">{name}</th>
      {cells.map((text, i) => (
        <td key={i}>{text}</td>
      ))}
    </tr>
  );
}
