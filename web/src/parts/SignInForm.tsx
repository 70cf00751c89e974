import { useState } from "preact/hooks";
import { canSignIn, type Issuer } from "../api/oauth";
import { beginSignIn } from "../state/signIn";
import { useCall } from "../state/useCall";
import { useIssuers } from "../state/useIssuers";

interface Props {
  base: string;
  /** Why the user has to sign in, "" for the first time. */
  why: string;
  enter: (key: string) => void;
}

/** SignInForm signs in with an issuer of tokens, or asks for an API key. */
export function SignInForm({ base, why, enter }: Props) {
  const issuers = useIssuers(base);
  if (!issuers) return null; // for a moment
  return (
    <>
      {why && <p role="alert">{why}</p>}
      {issuers.length > 0 && <Issuers base={base} issuers={issuers} />}
      <KeyForm alone={issuers.length === 0} enter={enter} />
      <p id="key-help" class="dim">
        A key of this server, as for <code>team-server call --token KEY</code>. Keys and sign-ins stay in this tab only.
      </p>
    </>
  );
}

/** Issuers has a button for each issuer. It opens the issuer in place of the page. */
function Issuers({ base, issuers }: { base: string; issuers: Issuer[] }) {
  const call = useCall();
  const begin = (i: Issuer) => void call.make(async () => location.assign(await beginSignIn(i, base, location.hash)));
  const waiting = issuers.filter((i) => !i.tokenEndpoint).map((i) => i.name);
  return (
    <>
      <div class="issuers">
        {issuers.map((i, n) => (
          <button key={i.name} class="primary" autofocus={n === 0} disabled={!i.tokenEndpoint || !canSignIn()} onClick={() => begin(i)}>
            Sign in with {i.name}
          </button>
        ))}
      </div>
      {!canSignIn() && <p role="status">Browsers let a page sign in over HTTPS only. Open this page at an address that begins with https://.</p>}
      {waiting.length > 0 && (
        <p role="status">
          This server cannot reach {waiting.join(", ")} yet. It keeps trying, and so does this page.
        </p>
      )}
      {call.error && <p role="alert">{call.error}</p>}
      <p class="or dim">or</p>
    </>
  );
}

/** KeyForm asks for an API key. */
function KeyForm({ alone, enter }: { alone: boolean; enter: (key: string) => void }) {
  const [key, setKey] = useState("");
  return (
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
        autofocus={alone}
        pattern="\s*[!-~]+\s*"
        title="An API key consists of printable ASCII characters without spaces."
        value={key}
        aria-describedby="key-help"
        onInput={(e) => setKey(e.currentTarget.value)}
      />
      <button class={alone ? "primary" : ""}>Open</button>
    </form>
  );
}
