import type { TraceDecision, TraceStep } from "../api/types";
import { stepName, words } from "../text";

/** Decision shows a decision with its reason: the rule or the model's text, and the values that it was based on. */
export function Decision({ decision: d, steps }: { decision: TraceDecision; steps: TraceStep[] }) {
  const to = d.finished ? "finish" : d.ask ? `ask people: ${words(d.ask)}` : steps.map(stepName).join(" + ");
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
