// Sign-in with an issuer of tokens: authorization code with PKCE (RFC 6749, RFC 7636), as a public client.

/** Issuer is an issuer with which users of the page sign in, as the server describes it. */
export interface Issuer {
  name: string;
  /** The issuer as it names itself. */
  issuer: string;
  /** Missing as long as the server could not read them. */
  authorizationEndpoint?: string;
  tokenEndpoint?: string;
  clientId: string;
  scopes: string[];
  audience?: string;
  resource?: string;
  /** Whether the issuer names itself in its answers (RFC 9207). */
  namesIssuer?: boolean;
}

/** Tokens are the tokens that an issuer has issued. */
export interface Tokens {
  access: string;
  /** "" for none. */
  refresh: string;
  /** When the access token was issued and when it expires, in ms since 1970 by the clock of the browser; 0 if the issuer does not say. */
  issued: number;
  expires: number;
}

/** SignInError says why an issuer issued no tokens. */
export class SignInError extends Error {
  /** @param final whether the issuer has refused, so that the same request cannot succeed later. */
  constructor(
    message: string,
    readonly final: boolean,
  ) {
    super(message);
  }
}

/** The timeout of a request to an issuer, in ms. */
const patience = 20_000;

/** canSignIn returns whether the browser lets this page compute SHA-256, which it does over HTTPS and on this machine only. */
export const canSignIn = (): boolean => globalThis.crypto?.subtle !== undefined;

/** base64url encodes bytes for URLs. */
function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** random returns 32 random bytes as a text for URLs. */
export function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

/** challenge returns the code challenge S256 of a verifier. */
export async function challenge(verifier: string): Promise<string> {
  return base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

/** authorizationURL returns the address at which an issuer asks the user to sign in. */
export async function authorizationURL(i: Issuer, redirect: string, state: string, verifier: string): Promise<string> {
  const url = new URL(i.authorizationEndpoint ?? "");
  const parameters = {
    response_type: "code",
    client_id: i.clientId,
    redirect_uri: redirect,
    scope: i.scopes.join(" "),
    state,
    code_challenge: await challenge(verifier),
    code_challenge_method: "S256",
    audience: i.audience,
    resource: i.resource,
  };
  for (const [name, value] of Object.entries(parameters)) if (value) url.searchParams.set(name, value);
  return url.href;
}

/** redeem exchanges an authorization code for tokens. */
export function redeem(i: Issuer, code: string, redirect: string, verifier: string): Promise<Tokens> {
  return request(i, { grant_type: "authorization_code", code, redirect_uri: redirect, code_verifier: verifier });
}

/** refresh exchanges a refresh token for new tokens. An issuer that sends no new refresh token leaves the old one valid. */
export async function refresh(i: Issuer, token: string): Promise<Tokens> {
  const tokens = await request(i, { grant_type: "refresh_token", refresh_token: token });
  return { ...tokens, refresh: tokens.refresh || token };
}

/** request sends a request to the token endpoint. */
async function request(i: Issuer, parameters: Record<string, string>): Promise<Tokens> {
  const body = new URLSearchParams({ ...parameters, client_id: i.clientId, ...(i.resource && { resource: i.resource }) });
  const issued = Date.now();
  let response: Response;
  let answer: Record<string, unknown>;
  try {
    response = await fetch(i.tokenEndpoint ?? "", {
      method: "POST",
      body,
      headers: { Accept: "application/json" },
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(patience),
    });
  } catch {
    throw new SignInError(
      `This page cannot reach the token endpoint of ${i.name}. Try again; if that does not help, its operator must allow calls from ${location.origin} (CORS).`,
      false,
    );
  }
  try {
    answer = ((await response.json()) ?? {}) as Record<string, unknown>;
  } catch {
    answer = {};
  }
  if (!response.ok) throw new SignInError(refusal(i.name, answer["error"], answer["error_description"]) || `${i.name} answered ${response.status}. Try again later.`, response.status < 500 && response.status !== 429);
  const access = answer["access_token"];
  if (typeof access !== "string" || !/^[!-~]+$/.test(access) || String(answer["token_type"]).toLowerCase() !== "bearer") {
    throw new SignInError(`${i.name} issued no access token of type Bearer. Ask its operator to check the client ${i.clientId}.`, true);
  }
  const lifetime = Number(answer["expires_in"]);
  const again = answer["refresh_token"];
  return { access, refresh: typeof again === "string" ? again : "", issued, expires: lifetime > 0 ? issued + lifetime * 1_000 : 0 };
}

/** refusal returns the text of an error response, "" if it has none. Its parts come from the issuer, and are texts only. */
export function refusal(name: string, error: unknown, description: unknown): string {
  if (typeof error !== "string" || !error) return "";
  const why = typeof description === "string" && description ? description : error;
  return `${name} refused the sign-in: ${why.length > 300 ? `${why.slice(0, 300)}…` : why}`;
}
