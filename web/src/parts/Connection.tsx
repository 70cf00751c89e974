import type { State } from "../state/store";

/** Connection shows whether the page is up to date. */
export function Connection({ state, known }: { state: State["connection"]; known: boolean }) {
  const text = { connecting: "connecting…", live: "live", reconnecting: "reconnecting…", refused: "not connected" }[state];
  return (
    <p id="connection" class={`connection ${state}`} role="status">
      {known ? text : ""}
    </p>
  );
}
