import { useState } from "preact/hooks";

/** KeyForm asks for an API key. */
export function KeyForm({ refused, enter }: { refused: boolean; enter: (key: string) => void }) {
  const [key, setKey] = useState("");
  return (
    <main class="key">
      <h1>Team Monitor</h1>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (key.trim()) enter(key.trim());
        }}
      >
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          autofocus
          pattern="\s*[!-~]+\s*"
          title="An API key consists of printable ASCII characters without spaces."
          value={key}
          aria-describedby="key-help"
          onInput={(e) => setKey(e.currentTarget.value)}
        />
        <button class="primary">Open</button>
      </form>
      {refused && <p role="alert">Unknown API key. Check it, or ask the operator of the server for one.</p>}
      <p id="key-help">
        Enter an API key of this server, as for <code>team-server call --token KEY</code>. It stays in this tab only.
      </p>
    </main>
  );
}
