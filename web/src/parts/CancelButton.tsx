import type { Client } from "../api/client";
import { useCall } from "../state/useCall";
import { ConfirmButton } from "./ConfirmButton";

/** CancelButton cancels a task. */
export function CancelButton({ client, team, task, requested }: { client: Client; team: string; task: string; requested: boolean }) {
  const call = useCall();
  const busy = call.busy || requested;
  return (
    <>
      <ConfirmButton
        label={busy ? "Canceling…" : "Cancel"}
        confirm="Really cancel?"
        busy={busy}
        act={() => void call.make(() => client.cancel(team, task))}
      />
      {call.error && <span role="alert">{call.error}</span>}
    </>
  );
}
