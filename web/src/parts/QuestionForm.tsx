import { useId, useState } from "preact/hooks";
import type { Client } from "../api/client";
import type { Message } from "../api/types";
import { useCall } from "../state/useCall";
import { asked } from "../text";

interface Props {
  client: Client;
  task: string;
  question: string;
  message: Message | undefined;
}

/** QuestionForm is a question, and takes the answer: one of its options, or words. */
export function QuestionForm({ client, task, question, message }: Props) {
  const [text, setText] = useState("");
  const [given, setGiven] = useState("");
  const call = useCall();
  const id = useId();
  const choices = options(message);
  const give = async (answer: string) => {
    if (await call.make(() => client.answer(task, question, answer))) setGiven(answer);
  };
  const idle = !call.busy && !given;
  return (
    <form
      class="question"
      onSubmit={(e) => {
        e.preventDefault();
        if (text.trim()) void give(text.trim());
      }}
    >
      <label for={id}>{asked(message)}</label>
      {choices.length > 0 ? (
        <div class="options" id={id} role="group" aria-label="answers">
          {choices.map((c) => (
            <button type="button" key={c} disabled={!idle} onClick={() => void give(c)}>
              {c}
            </button>
          ))}
        </div>
      ) : (
        <div class="options">
          <input id={id} value={text} disabled={!idle} onInput={(e) => setText(e.currentTarget.value)} placeholder="Your answer" />
          <button class="primary" disabled={!idle || !text.trim()}>
            Answer
          </button>
        </div>
      )}
      <p role="status">{given && `Answered: ${given}`}</p>
      {call.error && <p role="alert">{call.error}</p>}
    </form>
  );
}

/** options are the answers that a question names. */
export function options(m: Message | undefined): string[] {
  return (m?.parts ?? []).flatMap((p) => {
    const named = (p.data as { options?: unknown } | null | undefined)?.options;
    return Array.isArray(named) ? named.filter((o): o is string => typeof o === "string") : [];
  });
}
