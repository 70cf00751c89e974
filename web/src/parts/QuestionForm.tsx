import { useId, useRef, useState } from "preact/hooks";
import { APIError, type Client } from "../api/client";
import type { ApprovalRequest, Message } from "../api/types";
import { useCall } from "../state/useCall";
import { find, neighbor, useSuccessor } from "../state/useSuccessor";
import { asked } from "../text";

interface Props {
  client: Client;
  task: string;
  question: string;
  message: Message | undefined;
  /** What is to be approved, if the question asks for an approval. */
  approval?: ApprovalRequest | undefined;
  /** Called when another answer came first; the form may have been removed by then. */
  late?: (why: string) => void;
}

/**
 * QuestionForm shows a question and sends the answer: one of its options, a text, or for an approval also changed
 * arguments, a changed plan, or the reason of a rejection. It keeps the focus meanwhile.
 */
export function QuestionForm({ client, task, question, message, approval, late }: Props) {
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
      {approval && <Decision approval={approval} idle={idle} give={(answer) => void give(answer)} />}
      {!approval && <WithData data={data(message)} idle={idle} give={(answer) => void give(answer)} />}
      <p role="status">{given && `Answered: ${given}`}</p>
      {call.error && <p role="alert">{call.error}</p>}
    </form>
  );
}

interface DecisionProps {
  approval: ApprovalRequest;
  idle: boolean;
  give: (answer: string) => void;
}

/** Decision sends a rejection with its reason, or an approval with changed arguments or a changed plan. */
function Decision({ approval, idle, give }: DecisionProps) {
  const [reason, setReason] = useState("");
  const [edited, setEdited] = useState(approval.arguments ?? "");
  const why = useId();
  const what = useId();
  const [name, label, them] = approval.plan
    ? ["the plan", "Plan as JSON", "the changed plan"]
    : approval.tool
      ? ["the arguments", `Arguments of ${approval.tool}`, "the changed arguments"]
      : ["the task", `Task for ${approval.member ?? ""}`, "the changed task"];
  const changed = edited.trim() !== "" && edited.trim() !== (approval.arguments ?? "").trim();
  return (
    <details class="decision">
      <summary>Give a reason, or change {name}</summary>
      <label for={why}>Reason of a rejection</label>
      <div class="options">
        <input id={why} value={reason} readOnly={!idle} onInput={(e) => setReason(e.currentTarget.value)} />
        <button type="button" class="reject" disabled={!reason.trim()} aria-disabled={!idle} onClick={() => give(`reject: ${reason.trim()}`)}>
          Reject with this reason
        </button>
      </div>
      <label for={what}>{label}</label>
      <div class="options">
        <textarea id={what} rows={approval.plan ? 12 : 4} value={edited} readOnly={!idle} onInput={(e) => setEdited(e.currentTarget.value)} />
        <button type="button" class="edit" disabled={!changed} aria-disabled={!idle} onClick={() => give(`edit: ${edited.trim()}`)}>
          Approve {them}
        </button>
      </div>
    </details>
  );
}

interface WithDataProps {
  data: unknown[];
  idle: boolean;
  give: (answer: string) => void;
}

/** WithData shows the data of a question, and sends any answer: a text, or data, which some agents require. */
function WithData({ data, idle, give }: WithDataProps) {
  const [answer, setAnswer] = useState("");
  const id = useId();
  if (data.length === 0) return null;
  return (
    <details class="decision data">
      <summary>Show the data, or answer with data</summary>
      <pre>{data.map((d) => JSON.stringify(d, null, 2)).join("\n")}</pre>
      <label for={id}>Answer, as text or as a JSON object</label>
      <div class="options">
        <textarea id={id} rows={4} value={answer} readOnly={!idle} onInput={(e) => setAnswer(e.currentTarget.value)} />
        <button type="button" class="send" disabled={!answer.trim()} aria-disabled={!idle} onClick={() => give(answer.trim())}>
          Send this answer
        </button>
      </div>
    </details>
  );
}

/** data returns what a question holds besides texts and its options. */
export function data(m: Message | undefined): unknown[] {
  return (m?.parts ?? []).flatMap((p) => {
    const others = p.data !== null && typeof p.data === "object" ? Object.keys(p.data).filter((k) => k !== "options") : [""];
    return p.data === undefined || others.length === 0 ? [] : [p.data];
  });
}

/** options returns the answers that a question offers. */
export function options(m: Message | undefined): string[] {
  return (m?.parts ?? []).flatMap((p) => {
    const named = (p.data as { options?: unknown } | null | undefined)?.options;
    return Array.isArray(named) ? named.filter((o): o is string => typeof o === "string") : [];
  });
}
