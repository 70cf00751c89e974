import type { Client } from "../api/client";
import type { Traced } from "../state/useTrace";
import { useNow } from "../state/useNow";
import { find } from "../state/useSuccessor";
import { between, brief, facts, spent } from "../text";
import { CancelButton } from "./CancelButton";
import { Empty } from "./Empty";
import { TaskState } from "./TaskState";
import { TraceStep } from "./TraceStep";

interface Props {
  client: Client;
  task: string;
  traced: Traced;
  said: ReadonlyMap<string, string>;
  close: () => void;
}

/** TracePanel shows the trace of a task: its steps, with the decisions and their reasons. */
export function TracePanel({ client, task, traced, said, close }: Props) {
  const { trace, error } = traced;
  const step = trace?.step;
  const running = step !== undefined && !step.ended;
  const now = useNow(running);
  return (
    <section aria-labelledby="trace-title" class="panel trace" id="trace" data-seq={trace?.seq}>
      <div class="line">
        <h2 id="trace-title">{task ? `Trace of ${brief(task)}` : "Trace"}</h2>
        {step && (
          <>
            <TaskState state={trace.state ?? ""} />
            <span class="dim">{facts(between(step.decided, step.ended, now), spent(step.spent))}</span>
            {trace.engineUrl && (
              <a href={trace.engineUrl} target="_blank" rel="noopener noreferrer">
                Engine
              </a>
            )}
            {running && !task.includes("~") && (
              <CancelButton key={task} client={client} team={trace.agentId ?? ""} task={task} requested={false} />
            )}
          </>
        )}
        {task && (
          <button
            onClick={() => {
              (find(".tasks .chosen button.row") ?? find("#message"))?.focus(); // this button disappears
              close();
            }}
          >
            Close
          </button>
        )}
      </div>
      {error && (
        <p role="alert" class="alarm">
          {error}
        </p>
      )}
      {!task && <Empty say="Open a task to see which agents worked on it, and why." />}
      {step && (
        <ul class="tree">
          <TraceStep key={step.id} client={client} root={trace.taskId} step={step} said={said} now={now} />
        </ul>
      )}
    </section>
  );
}
