import type { TraceDecision, TraceStep } from "../api/types";
import { stepName, words } from "../text";

/** Decision is what was decided, and why: the rule or the words of the model, with the values that it saw. */
export function Decision({ decision: d, steps }: { decision: TraceDecision; steps: TraceStep[] }) {
  const to = d.finished ? "ends" : d.ask ? `asks people: ${words(d.ask)}` : steps.map(stepName).join(" + ");
  const values = Object.entries(d.values ?? {});
  return (
    <p class="decision">
      {d.rule ? (
        <>
          rule <strong>{d.rule}</strong>
        </>
      ) : (
        "decision"
      )}{" "}
      <span aria-label="leads to">→</span> {to}
      {d.reason && <span class="why"> because {d.reason}</span>}
      {values.length > 0 && <span class="values"> {values.map(([name, v]) => `${name} = ${JSON.stringify(v)}`).join(", ")}</span>}
      {d.cancel?.length ? <span class="dim"> and cancels {d.cancel.length} open steps</span> : null}
    </p>
  );
}
