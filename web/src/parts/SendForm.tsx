import { useRef, useState } from "preact/hooks";
import { newID, type Client } from "../api/client";
import type { TeamSnapshot } from "../api/types";
import { useCall } from "../state/useCall";

/** SendForm sends a message to the team, which starts a task. */
export function SendForm({ client, team, sent }: { client: Client; team: TeamSnapshot; sent: (task: string) => void }) {
  const [text, setText] = useState("");
  const message = useRef(newID()); // the same ID after a failure, so that there is only one task
  const form = useRef<HTMLFormElement>(null);
  const call = useCall();
  const send = async () => {
    let task = "";
    if (!(await call.make(async () => (task = await client.send(team.teamId, message.current, text))))) return;
    setText("");
    message.current = newID();
    if (task && form.current) sent(task); // unless the page shows another team by now
  };
  return (
    <form
      ref={form}
      class="send"
      data-team={team.teamId}
      aria-label={`Send a message to ${team.name || team.teamId}`}
      onSubmit={(e) => {
        e.preventDefault();
        if (text.trim()) void send();
      }}
    >
      <textarea
        id="message"
        rows={1}
        value={text}
        aria-label="Message"
        placeholder={`Send a message to ${team.name || team.teamId}`}
        onInput={(e) => {
          setText(e.currentTarget.value);
          message.current = newID();
        }}
        onKeyDown={(e) => {
          if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          e.currentTarget.form?.requestSubmit();
        }}
      />
      <button class="primary" id="send" disabled={call.busy || !text.trim()}>
        Send
      </button>
      {call.error && <p role="alert">{call.error}</p>}
    </form>
  );
}
