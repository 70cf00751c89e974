import { useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { OpenQuestion } from "../api/types";
import { brief } from "../text";
import { QuestionForm } from "./QuestionForm";

interface Props {
  client: Client;
  questions: OpenQuestion[];
  /** The team that the page shows. */
  team: string;
  /** Opens a task of a team. */
  open: (team: string, task: string) => void;
}

/** Questions lists the open questions of all teams, including questions to a role in tasks of other users. Those tasks cannot be opened. */
export function Questions({ client, questions, team, open }: Props) {
  const [late, setLate] = useState<string[]>([]); // reasons why answers were too late
  const shown = questions.length > 0 || late.length > 0;
  return (
    <section aria-labelledby="questions-title" class={shown ? "questions" : "unseen"}>
      <h2 id="questions-title" aria-live="polite">
        {questions.length === 0
          ? "No open questions"
          : questions.length === 1
            ? "A question is waiting for you"
            : `${questions.length} questions are waiting for you`}
      </h2>
      {late.map((why, i) => (
        <p role="alert" key={`${i} ${why}`}>
          {why}{" "}
          <button class="link" onClick={() => setLate(late.filter((w) => w !== why))}>
            Dismiss
          </button>
        </p>
      ))}
      <ul>
        {questions.map((q) => (
          <li key={`${q.taskId} ${q.question.question}`} data-question={q.question.question}>
            <p class="dim">
              {q.agentId && q.agentId !== team ? `Team ${q.agentId}: ` : ""}
              {q.question.path} asks in {q.byRole ? "another user's task " : "task "}
              {q.byRole ? (
                brief(q.taskId)
              ) : (
                <button class="link" onClick={() => open(q.agentId || team, q.taskId)}>
                  {brief(q.taskId)}
                </button>
              )}
              {q.question.roles?.length ? `, for ${q.question.roles.join(", ")}` : ""}
            </p>
            <QuestionForm
              client={client}
              task={q.taskId}
              question={q.question.question}
              message={q.question.message}
              approval={q.question.approval}
              late={(why) => setLate((all) => [...all, why])}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}
