import type { Client } from "../api/client";
import type { Plan, TraceStep as Step } from "../api/types";
import { format } from "../state/link";
import { maxSaid } from "../state/store";
import { asked, between, brief, clip, describe, facts, failure, kindName, plain, spent, stepName, words } from "../text";
import { Decision } from "./Decision";
import { QuestionForm } from "./QuestionForm";
import { TaskState } from "./TaskState";

interface Props {
  client: Client;
  /** The task of the trace, to which answers are sent. */
  root: string;
  step: Step;
  said: ReadonlyMap<string, string>;
  now: number;
}

/** TraceStep shows a step: its state, its decisions with the steps below, and its result. */
export function TraceStep(props: Props) {
  const { step, said, now } = props;
  const leaf = !step.decisions?.length && !step.steps?.length && !step.questions?.length;
  return (
    <li data-step={step.id} data-state={step.state}>
      <details open={!leaf || step.error !== undefined}>
        <summary>
          <TaskState state={step.outcome ?? step.state ?? ""} /> <strong>{step.kind ? stepName(step) : step.path}</strong>{" "}
          <span class="dim">
            {facts(step.member ? kindName(step.kind) : "", between(step.started ?? step.decided, step.ended, now), spent(step.spent))}
          </span>
        </summary>
        <Given step={step} />
        <Decisions {...props} />
        <Asked {...props} />
        <Notes step={step} />
        <Result step={step} />
      </details>
      {step.state === "STATE_RUNNING" && said.has(step.id) && <p class="said">{ending(said.get(step.id) ?? "")}</p>}
    </li>
  );
}

/** ending marks streamed text whose beginning was dropped. */
function ending(text: string): string {
  return text.length < maxSaid ? text : `…${text}`;
}

/** Given shows the input of a step and its attempts. */
function Given({ step }: { step: Step }) {
  const text = words(step.input);
  const attempts = step.attempts ?? [];
  const used = attempts.at(-1);
  return (
    <>
      {text && <Text label="input" text={text} />}
      {(attempts.length > 1 || used?.model || used?.endpoint) && (
        <p class="dim">
          {attempts.length > 1 && `${attempts.length} attempts `} {used?.model && `model ${used.model}`}{" "}
          {used?.endpoint && `at ${used.endpoint}`}
        </p>
      )}
      {attempts.map((a) => a.error && a !== used && <p key={a.attempt} class="problem">{`attempt ${a.attempt}: ${failure(a.error)}`}</p>)}
    </>
  );
}

/** Decisions shows the decisions in a step, each with the steps that it started. */
function Decisions({ step, ...rest }: Props) {
  const steps = step.steps ?? [];
  const begun = new Set((step.decisions ?? []).flatMap((d) => d.steps ?? []));
  const tree = (some: Step[]) =>
    some.length > 0 && (
      <ul>
        {some.map((s) => (
          <TraceStep key={s.id} {...rest} step={s} />
        ))}
      </ul>
    );
  return (
    <>
      {(step.decisions ?? []).map((d) => {
        const own = steps.filter((s) => d.steps?.includes(s.id));
        return (
          <div key={d.seq} class="decided" data-decision={d.seq}>
            <Decision decision={d} steps={own} />
            {d.plan && <Planned plan={d.plan} />}
            {tree(own)}
          </div>
        );
      })}
      {tree(steps.filter((s) => !begun.has(s.id)))}
    </>
  );
}

/** Planned shows the steps of a plan that begins. */
function Planned({ plan }: { plan: Plan }) {
  return (
    <ol class="plan" aria-label="plan">
      {(plan.steps ?? []).map((s) => (
        <li key={s.id}>
          <strong>{s.id}</strong> {s.member}{" "}
          <span class="dim">{[s.after?.length && `after ${s.after.join(", ")}`, s.when && `if ${s.when}`].filter(Boolean).join(", ")}</span>{" "}
          <span class="words">{clip(s.task ?? "", 400)}</span>
        </li>
      ))}
    </ol>
  );
}

/** Asked shows the questions of a step, with a form for open ones. */
function Asked({ client, root, step }: Props) {
  return (
    <>
      {(step.questions ?? []).map((q) =>
        q.closed ? (
          <p key={q.question} class="answered">
            asked: {asked(q.message)} <strong>{q.answer ? words(q.answer) : "not answered"}</strong> <span class="dim">{q.by}</span>
          </p>
        ) : (
          <QuestionForm key={q.question} client={client} task={root} question={q.question} message={q.message} approval={q.approval} />
        ),
      )}
    </>
  );
}

/** Notes shows other important events of a step. */
function Notes({ step }: { step: Step }) {
  const notes = (step.notes ?? []).map((n) => ({ seq: n.seq, ...describe(n) })).filter((n) => n.level !== "detail");
  return (
    <>
      {notes.map((n) => (
        <p key={n.seq} class={n.level === "problem" ? "problem" : "dim"}>
          {n.text}
        </p>
      ))}
      {(step.warnings ?? []).map((w) => (
        <p key={w} class="problem">
          {w}
        </p>
      ))}
    </>
  );
}

/** Result shows the result of a step. */
function Result({ step }: { step: Step }) {
  const { turn, tool, transfer } = step;
  return (
    <>
      {turn?.text && <Text label="text" text={turn.text} />}
      {turn?.toolCalls?.map((c, i) => (
        <p key={i} class="call">{`calls ${c.name} ${clip(c.arguments ?? "", 200)}`}</p>
      ))}
      {tool && <Text label={tool.isError ? "error" : "result"} text={tool.text ?? ""} />}
      {transfer && <p>{["hands over to", transfer.to, transfer.message].filter(Boolean).join(" ")}</p>}
      {step.reply && <Text label={plain(step.outcome, "OUTCOME_") === "succeeded" ? "result" : "reply"} text={words(step.reply)} />}
      {step.error && <p class="problem">{failure(step.error)}</p>}
      {step.spawnedTaskId && (
        <p>
          continues as task{" "}
          <a href={format({ team: step.path?.split("/")[0] ?? "", task: step.spawnedTaskId })}>{brief(step.spawnedTaskId)}</a>
        </p>
      )}
    </>
  );
}

/** Text shows a text with a label. Long texts are cut. The text is escaped, so markup has no effect. */
function Text({ label, text }: { label: string; text: string }) {
  return (
    <p class="io">
      <span class="dim">{label}</span> <span class="words">{text.length > 4_000 ? `${text.slice(0, 4_000)}…` : text}</span>
    </p>
  );
}
