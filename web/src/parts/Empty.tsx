/** Empty says that there is nothing, and the command that changes it. */
export function Empty({ say, command, base }: { say: string; command?: string; base?: string }) {
  return (
    <div class="empty">
      <p>{say}</p>
      {command && <code>{base ? `${command} --server ${base.replace(/\/$/, "")}` : command}</code>}
    </div>
  );
}
