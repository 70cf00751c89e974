import type { State } from "../state/store";

/** Connection says whether what is shown is how things are now. */
export function Connection({ state, known }: { state: State["connection"]; known: boolean }) {
  const text = { connecting: "connecting…", live: "live", reconnecting: "reconnecting…", refused: "not connected" }[state];
  return (
    <p id="connection" class={`connection ${state}`} role="status">
      {known ? text : ""}
    </p>
  );
}
