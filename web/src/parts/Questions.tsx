import type { Client } from "../api/client";
import type { OpenQuestion } from "../api/types";
import { brief } from "../text";
import { QuestionForm } from "./QuestionForm";

/** Questions are those that wait for people: of a team, and of tasks of others by role, which are not to be opened. */
export function Questions({ client, questions, open }: { client: Client; questions: OpenQuestion[]; open: (task: string) => void }) {
  return (
    <section aria-labelledby="questions-title" class={questions.length > 0 ? "questions" : "unseen"}>
      <h2 id="questions-title" aria-live="polite">
        {questions.length === 0
          ? "No questions wait"
          : questions.length === 1
            ? "A question waits for you"
            : `${questions.length} questions wait for you`}
      </h2>
      <ul>
        {questions.map((q) => (
          <li key={`${q.taskId} ${q.question.question}`} data-question={q.question.question}>
            <p class="dim">
              {q.question.path} asks, in {q.byRole ? "somebody's task " : "task "}
              {q.byRole ? (
                brief(q.taskId)
              ) : (
                <button class="link" onClick={() => open(q.taskId)}>
                  {brief(q.taskId)}
                </button>
              )}
              {q.question.roles?.length ? `, for ${q.question.roles.join(", ")}` : ""}
            </p>
            <QuestionForm client={client} task={q.taskId} question={q.question.question} message={q.question.message} />
          </li>
        ))}
      </ul>
    </section>
  );
}
