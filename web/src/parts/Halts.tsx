import type { Client } from "../api/client";
import type { Halt } from "../api/types";
import { useCall } from "../state/useCall";
import { halted } from "../text";
import { ConfirmButton } from "./ConfirmButton";

/** Halts lists what is halted on the server, with a button to resume it. */
export function Halts({ client, halts, changed }: { client: Client; halts: Halt[]; changed: () => void }) {
  if (halts.length === 0) return null;
  return (
    <section aria-labelledby="halts-title" class="halts">
      <h2 id="halts-title" aria-live="polite">
        {halts.length === 1 ? "Work is halted" : `Work is halted by ${halts.length} halts`}
      </h2>
      <ul>
        {halts.map((h) => (
          <HaltRow key={`${h.kind} ${h.name ?? ""} ${h.account ?? ""}`} client={client} halt={h} changed={changed} />
        ))}
      </ul>
    </section>
  );
}

/** HaltRow shows a halt. */
function HaltRow({ client, halt, changed }: { client: Client; halt: Halt; changed: () => void }) {
  const call = useCall();
  const resume = async () => {
    if (await call.make(() => client.resume(halt))) changed();
  };
  return (
    <li data-halt={halt.name ?? ""}>
      <p>
        <strong>{halted(halt)}</strong> is {halt.pause ? "paused" : "stopped"}: {halt.reason}
      </p>
      <p class="dim">
        by {halt.by} at {new Date(halt.at).toLocaleString()}{" "}
        <ConfirmButton label={call.busy ? "Resuming…" : "Resume"} confirm="Really resume?" busy={call.busy} act={() => void resume()} />
      </p>
      {call.error && <p role="alert">{call.error}</p>}
    </li>
  );
}
