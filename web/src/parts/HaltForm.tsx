import { useId, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { HaltReceipt, TeamSnapshot } from "../api/types";
import { useCall } from "../state/useCall";
import { stopped } from "../text";
import { ConfirmButton } from "./ConfirmButton";

/** HaltForm halts the team, and shows what that has stopped. */
export function HaltForm({ client, team, agent, changed }: { client: Client; team: TeamSnapshot; agent: boolean; changed: () => void }) {
  const [reason, setReason] = useState("");
  const [pause, setPause] = useState(false);
  const [receipt, setReceipt] = useState<HaltReceipt | null>(null);
  const call = useCall();
  const id = useId();
  const halt = async () => {
    setReceipt(null);
    const kind = agent ? "HALT_KIND_AGENT" : "HALT_KIND_TEAM";
    if (!(await call.make(async () => setReceipt(await client.halt(kind, team.teamId, reason.trim(), pause))))) return;
    setReason("");
    changed();
  };
  return (
    <details class="halt">
      <summary>Halt {team.name || team.teamId}</summary>
      <div class="options">
        <label for={id}>Reason</label>
        <input id={id} value={reason} maxLength={500} onInput={(e) => setReason(e.currentTarget.value)} placeholder="Shown to callers whose messages are refused" />
        <label>
          <input type="checkbox" checked={pause} onInput={(e) => setPause(e.currentTarget.checked)} /> pause what runs instead of canceling it
        </label>
        <ConfirmButton label={call.busy ? "Halting…" : "Halt"} confirm="Really halt?" busy={call.busy || !reason.trim()} act={() => void halt()} />
      </div>
      <p role="status">{receipt && stopped(receipt)}</p>
      {call.error && <p role="alert">{call.error}</p>}
    </details>
  );
}
