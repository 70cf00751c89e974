import { refresh, SignInError, type Issuer, type Tokens } from "../api/oauth";

/** Session is what the page shows the server of its user. All of it is stored in the session storage of the tab only. */
export interface Session {
  /** What the user has signed in with; "" means nothing. */
  readonly by: "" | "key" | "token";
  /** The issuer of the token, "" without one. */
  readonly issuer: string;
  /** bearer returns the key or token to send, "" for none. It rejects if there is none at present. */
  bearer(): Promise<string>;
  /** renew is called when the server has rejected a key or token, and returns whether there is another one to try. */
  renew(rejected: string): Promise<boolean>;
  /** forget deletes all that is stored. */
  forget(): void;
}

const keyPlace = "team-monitor.key";
const tokenPlace = "team-monitor.token";

/** keepKey stores an API key, and forgets what was stored before. */
export function keepKey(key: string, storage: Storage = sessionStorage): void {
  forgetAll(storage);
  storage.setItem(keyPlace, key);
}

/** keepTokens stores the tokens of an issuer, and forgets what was stored before. */
export function keepTokens(issuer: Issuer, tokens: Tokens, storage: Storage = sessionStorage): void {
  forgetAll(storage);
  storage.setItem(tokenPlace, JSON.stringify({ issuer, tokens }));
}

function forgetAll(storage: Storage): void {
  storage.removeItem(keyPlace);
  storage.removeItem(tokenPlace);
}

/** keptSession returns the session of what is stored. */
export function keptSession(storage: Storage = sessionStorage): Session {
  const kept = storage.getItem(tokenPlace);
  if (kept) {
    const { issuer, tokens } = JSON.parse(kept) as { issuer: Issuer; tokens: Tokens };
    return new TokenSession(issuer, tokens, storage);
  }
  const key = storage.getItem(keyPlace) ?? "";
  return {
    by: key ? "key" : "",
    issuer: "",
    bearer: () => Promise.resolve(key),
    renew: () => Promise.resolve(false),
    forget: () => forgetAll(storage),
  };
}

/** TokenSession renews the token of an issuer with a refresh token, if the issuer has issued one. */
export class TokenSession implements Session {
  readonly by = "token";
  private renewing: Promise<void> | null = null; // one renewal for all calls, because a refresh token often works once
  private forgotten = false;

  constructor(
    private readonly from: Issuer,
    private tokens: Tokens,
    private readonly storage: Storage,
  ) {}

  get issuer(): string {
    return this.from.name;
  }

  async bearer(): Promise<string> {
    const { refresh, expires, issued } = this.tokens;
    const early = Math.min(60_000, (expires - issued) / 4);
    if (refresh && expires && Date.now() >= expires - early) {
      await this.renewOnce().catch((e: unknown) => {
        if (Date.now() >= expires && !(e instanceof SignInError && e.final)) throw e; // the issuer may be there again later
      });
    }
    return this.tokens.access;
  }

  async renew(rejected: string): Promise<boolean> {
    if (this.tokens.access === rejected && this.tokens.refresh) {
      await this.renewOnce().catch((e: unknown) => {
        if (!(e instanceof SignInError && e.final)) throw e;
      });
    }
    return this.tokens.access !== rejected;
  }

  forget(): void {
    this.forgotten = true;
    forgetAll(this.storage);
  }

  private renewOnce(): Promise<void> {
    this.renewing ??= this.exchange().finally(() => (this.renewing = null));
    return this.renewing;
  }

  private async exchange(): Promise<void> {
    try {
      this.keep(await refresh(this.from, this.tokens.refresh));
    } catch (e) {
      // The issuer has refused: the access token is used until the server rejects it.
      if (e instanceof SignInError && e.final) this.keep({ ...this.tokens, refresh: "" });
      throw e;
    }
  }

  private keep(tokens: Tokens): void {
    this.tokens = tokens;
    if (!this.forgotten) keepTokens(this.from, tokens, this.storage); // the user may have signed out meanwhile
  }
}
