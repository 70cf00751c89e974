import { useId, useRef, useState } from "preact/hooks";
import { APIError, type Client } from "../api/client";
import type { Message } from "../api/types";
import { useCall } from "../state/useCall";
import { find, neighbor, useSuccessor } from "../state/useSuccessor";
import { asked } from "../text";

interface Props {
  client: Client;
  task: string;
  question: string;
  message: Message | undefined;
  /** Called when another answer came first; the form may have been removed by then. */
  late?: (why: string) => void;
}

/** QuestionForm shows a question and sends the answer: one of its options, or a text. It keeps the focus meanwhile. */
export function QuestionForm({ client, task, question, message, late }: Props) {
  const [text, setText] = useState("");
  const [given, setGiven] = useState("");
  const call = useCall();
  const id = useId();
  const form = useRef<HTMLFormElement>(null);
  useSuccessor(form, (from) => from.closest("details")?.querySelector("summary") ?? neighbor(from.closest("li"), "button.option, input") ?? find("#trace summary"));
  const choices = options(message);
  const give = async (answer: string) => {
    if (given) return;
    const send = async () => {
      try {
        await client.answer(task, question, answer);
      } catch (e) {
        if (e instanceof APIError && e.reason === "QUESTION_ANSWERED") late?.(`“${asked(message)}”: ${e.message}`);
        throw e;
      }
    };
    if (await call.make(send)) setGiven(answer);
  };
  const idle = !call.busy && !given;
  return (
    <form
      ref={form}
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
            <button type="button" class="option" key={c} aria-disabled={!idle} onClick={() => void give(c)}>
              {c}
            </button>
          ))}
        </div>
      ) : (
        <div class="options">
          <input id={id} value={text} readOnly={!idle} onInput={(e) => setText(e.currentTarget.value)} placeholder="Your answer" />
          <button class="primary" disabled={!text.trim()} aria-disabled={!idle}>
            Answer
          </button>
        </div>
      )}
      <p role="status">{given && `Answered: ${given}`}</p>
      {call.error && <p role="alert">{call.error}</p>}
    </form>
  );
}

/** options returns the answers that a question offers. */
export function options(m: Message | undefined): string[] {
  return (m?.parts ?? []).flatMap((p) => {
    const named = (p.data as { options?: unknown } | null | undefined)?.options;
    return Array.isArray(named) ? named.filter((o): o is string => typeof o === "string") : [];
  });
}
