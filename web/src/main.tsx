import { render } from "preact";
import { Page } from "./Page";
import { resumeSignIn } from "./state/signIn";

const base = new URL(".", location.href).href;
const show = (signedIn: boolean, failure: string) => render(<Page base={base} signedIn={signedIn} failure={failure} />, document.body);
const resumed = resumeSignIn(base);
if (resumed) {
  render(
    <main class="key">
      <h1>Team Monitor</h1>
      <p role="status">Signing in…</p>
    </main>,
    document.body,
  );
  resumed.then(
    () => show(true, ""),
    (e: unknown) => show(false, e instanceof Error ? e.message : String(e)),
  );
} else {
  show(false, "");
}
