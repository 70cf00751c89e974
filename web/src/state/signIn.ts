import { authorizationURL, random, redeem, refusal, SignInError, type Issuer } from "../api/oauth";
import { keepTokens } from "./session";

// A sign-in that has begun is kept in the session storage of the tab until the issuer has answered, so that only
// the tab that began it can finish it, once.
const place = "team-monitor.sign-in";

interface Begun {
  state: string;
  verifier: string;
  /** The address to which the issuer sends the answer. */
  redirect: string;
  /** The part of the URL after # that was open, which is open again afterwards. */
  hash: string;
  issuer: Issuer;
}

/** Answer is the answer of an issuer, as parameters in the URL of the page. */
export interface Answer {
  state: string;
  code: string;
  error: string;
  description: string;
  /** The issuer as it names itself, null if it does not. */
  issuer: string | null;
}

/** beginSignIn keeps a sign-in and returns the address of the issuer to open. */
export async function beginSignIn(issuer: Issuer, redirect: string, hash: string, storage: Storage = sessionStorage): Promise<string> {
  const begun: Begun = { state: random(), verifier: random(), redirect, hash, issuer };
  const url = await authorizationURL(issuer, redirect, begun.state, begun.verifier);
  storage.setItem(place, JSON.stringify(begun));
  return url;
}

/** answerIn returns the answer of an issuer in the query of a URL, null if there is none. */
export function answerIn(search: string): Answer | null {
  const q = new URLSearchParams(search);
  if (!q.has("state") || !(q.has("code") || q.has("error"))) return null;
  const text = (name: string) => q.get(name) ?? "";
  return { state: text("state"), code: text("code"), error: text("error"), description: text("error_description"), issuer: q.get("iss") };
}

/** takeBegun returns the sign-in that an answer belongs to, and forgets it. */
export function takeBegun(answer: Answer, storage: Storage = sessionStorage): Begun {
  const kept = storage.getItem(place);
  storage.removeItem(place);
  const begun = kept ? (JSON.parse(kept) as Begun) : null;
  if (!begun || answer.state !== begun.state) throw new SignInError("This answer belongs to no sign-in of this tab. Sign in again.", true);
  return begun;
}

/**
 * resumeSignIn finishes the sign-in whose answer is in the URL of the page, and removes the answer from the URL. It
 * returns null if there is none.
 */
export function resumeSignIn(base: string): Promise<void> | null {
  const answer = answerIn(location.search);
  if (!answer) return null;
  history.replaceState(null, "", base);
  try {
    const begun = takeBegun(answer);
    history.replaceState(null, "", base + begun.hash);
    return finishSignIn(answer, begun);
  } catch (e) {
    return Promise.reject(e as Error);
  }
}

/** finishSignIn exchanges the code of an answer for tokens. */
export async function finishSignIn(answer: Answer, begun: Begun, storage: Storage = sessionStorage): Promise<void> {
  const { issuer } = begun;
  if (answer.issuer === null ? issuer.namesIssuer : answer.issuer !== issuer.issuer) {
    throw new SignInError(`The answer is not from ${issuer.name}. Sign in again.`, true);
  }
  const refused = refusal(issuer.name, answer.error, answer.description);
  if (refused) throw new SignInError(refused, true);
  keepTokens(issuer, await redeem(issuer, answer.code, begun.redirect, begun.verifier), storage);
}
