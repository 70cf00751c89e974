/** Empty is shown instead of an empty list, with a command that helps. */
export function Empty({ say, command, base }: { say: string; command?: string; base?: string }) {
  return (
    <div class="empty">
      <p>{say}</p>
      {command && <code>{base ? `${command} --server ${base.replace(/\/$/, "")}` : command}</code>}
    </div>
  );
}
