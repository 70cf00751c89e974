import type { Client } from "../api/client";
import type { TraceStep as Step } from "../api/types";
import { format } from "../state/link";
import { maxSaid } from "../state/store";
import { asked, between, brief, clip, facts, failure, kindName, plain, spent, stepName, tell, words } from "../text";
import { Decision } from "./Decision";
import { QuestionForm } from "./QuestionForm";
import { TaskState } from "./TaskState";

interface Props {
  client: Client;
  /** The task that is traced: answers go to it. */
  root: string;
  step: Step;
  said: ReadonlyMap<string, string>;
  now: number;
}

/** TraceStep is a piece of work: how it stands, what was decided in it, and what came of it. */
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

/** ending is streamed text, of which no more than the end is kept. */
function ending(text: string): string {
  return text.length < maxSaid ? text : `…${text}`;
}

/** Given is what a step was given, and how often it was tried. */
function Given({ step }: { step: Step }) {
  const text = words(step.input);
  const attempts = step.attempts ?? [];
  const used = attempts.at(-1);
  return (
    <>
      {text && <Text label="given" text={text} />}
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

/** Decisions are what was decided in a step, each with the steps that it began. */
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
            {tree(own)}
          </div>
        );
      })}
      {tree(steps.filter((s) => !begun.has(s.id)))}
    </>
  );
}

/** Asked are the questions of a step: open ones are answered here. */
function Asked({ client, root, step }: Props) {
  return (
    <>
      {(step.questions ?? []).map((q) =>
        q.closed ? (
          <p key={q.question} class="answered">
            asked: {asked(q.message)} <strong>{q.answer ? words(q.answer) : "not answered"}</strong> <span class="dim">{q.by}</span>
          </p>
        ) : (
          <QuestionForm key={q.question} client={client} task={root} question={q.question} message={q.message} />
        ),
      )}
    </>
  );
}

/** Notes are what else is on record of a step and matters to people. */
function Notes({ step }: { step: Step }) {
  const told = (step.notes ?? []).map((n) => ({ seq: n.seq, ...tell(n) })).filter((n) => n.level !== "detail");
  return (
    <>
      {told.map((n) => (
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

/** Result is what came of a step. */
function Result({ step }: { step: Step }) {
  const { turn, tool, transfer } = step;
  return (
    <>
      {turn?.text && <Text label="said" text={turn.text} />}
      {turn?.toolCalls?.map((c, i) => (
        <p key={i} class="call">{`calls ${c.name} ${clip(c.arguments ?? "", 200)}`}</p>
      ))}
      {tool && <Text label={tool.isError ? "failed" : "answered"} text={tool.text ?? ""} />}
      {transfer && <p>{["hands over to", transfer.to, transfer.message].filter(Boolean).join(" ")}</p>}
      {step.reply && <Text label={plain(step.outcome, "OUTCOME_") === "succeeded" ? "result" : "said"} text={words(step.reply)} />}
      {step.error && <p class="problem">{failure(step.error)}</p>}
      {step.spawnedTaskId && (
        <p>
          goes on as task{" "}
          <a href={format({ team: step.path?.split("/")[0] ?? "", task: step.spawnedTaskId })}>{brief(step.spawnedTaskId)}</a>
        </p>
      )}
    </>
  );
}

/** Text is a text that may be long. It is shown as it is: nothing in it is taken for markup. */
function Text({ label, text }: { label: string; text: string }) {
  return (
    <p class="io">
      <span class="dim">{label}</span> <span class="words">{text.length > 4_000 ? `${text.slice(0, 4_000)}…` : text}</span>
    </p>
  );
}
