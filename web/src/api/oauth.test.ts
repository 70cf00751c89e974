import { afterEach, expect, test, vi } from "vitest";
import { authorizationURL, challenge, random, redeem, refresh, refusal, SignInError, type Issuer } from "./oauth";

const issuer: Issuer = {
  name: "corp",
  issuer: "https://id.example",
  authorizationEndpoint: "https://id.example/authorize?tenant=a",
  tokenEndpoint: "https://id.example/token",
  clientId: "monitor",
  scopes: ["openid", "offline_access"],
};

afterEach(() => void vi.unstubAllGlobals());

/** answers has fetch answer with one response, and returns what it was called with. */
function answers(response: Response | Error): [url: string, init: RequestInit][] {
  const calls: [string, RequestInit][] = [];
  vi.stubGlobal("location", { origin: "https://team.example" });
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    calls.push([url, init]);
    return response instanceof Error ? Promise.reject(response) : Promise.resolve(response);
  });
  return calls;
}

const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status });

test("the challenge is that of RFC 7636, appendix B", async () => {
  expect(await challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")).toBe("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
});

test("random texts are verifiers of 256 bits, and differ", () => {
  const all = new Set(Array.from({ length: 100 }, random));
  expect(all.size).toBe(100);
  for (const text of all) expect(text).toMatch(/^[A-Za-z0-9_-]{43}$/);
});

test("the address of the issuer keeps its query, and has all parameters", async () => {
  const url = new URL(await authorizationURL({ ...issuer, audience: "team", resource: "https://team.example" }, "https://team.example/m/", "s&1", "v"));
  expect(Object.fromEntries(url.searchParams)).toEqual({
    tenant: "a",
    response_type: "code",
    client_id: "monitor",
    redirect_uri: "https://team.example/m/",
    scope: "openid offline_access",
    state: "s&1",
    code_challenge: await challenge("v"),
    code_challenge_method: "S256",
    audience: "team",
    resource: "https://team.example",
  });
  const plain = new URL(await authorizationURL(issuer, "https://team.example/", "s", "v"));
  expect(plain.searchParams.has("audience")).toBe(false);
});

test("a code is exchanged without credentials of the browser, and without redirects", async () => {
  const calls = answers(json({ access_token: "a.b.c", token_type: "bearer", expires_in: "300", refresh_token: "r" }));
  const tokens = await redeem({ ...issuer, resource: "https://team.example" }, "c+d", "https://team.example/", "v");
  expect(tokens).toMatchObject({ access: "a.b.c", refresh: "r" });
  expect(tokens.expires - tokens.issued).toBe(300_000);
  expect(calls).toHaveLength(1);
  const [url, init] = calls[0]!;
  expect(url).toBe("https://id.example/token");
  expect(init).toMatchObject({ method: "POST", credentials: "omit", redirect: "error", cache: "no-store" });
  expect(Object.fromEntries(init.body as URLSearchParams)).toEqual({
    grant_type: "authorization_code",
    code: "c+d",
    redirect_uri: "https://team.example/",
    code_verifier: "v",
    client_id: "monitor",
    resource: "https://team.example",
  });
});

test("a refresh token that is not replaced stays", async () => {
  answers(json({ access_token: "x", token_type: "Bearer" }));
  expect(await refresh(issuer, "old")).toMatchObject({ access: "x", refresh: "old", expires: 0 });
});

test("each answer without a token is an error that says whether it is final", async () => {
  const cases: [Response | Error, string, boolean][] = [
    [json({ error: "invalid_grant", error_description: "The code is used." }, 400), "corp refused the sign-in: The code is used.", true],
    [json({ error: "invalid_client" }, 401), "corp refused the sign-in: invalid_client", true],
    [new Response("<h1>Bad</h1>", { status: 502 }), "corp answered 502. Try again later.", false],
    [json(null, 429), "corp answered 429. Try again later.", false],
    [new TypeError("Failed to fetch"), "must allow calls from https://team.example (CORS)", false],
    [json({ access_token: "x", token_type: "DPoP" }), "issued no access token of type Bearer", true],
    [json({ access_token: "x\r\ny", token_type: "Bearer" }), "issued no access token of type Bearer", true],
    [json({ id_token: "x", token_type: "Bearer" }), "issued no access token of type Bearer", true],
    [json([]), "issued no access token of type Bearer", true],
  ];
  for (const [response, text, final] of cases) {
    answers(response);
    const error = await redeem(issuer, "c", "https://team.example/", "v").catch((e: unknown) => e);
    expect(error, text).toBeInstanceOf(SignInError);
    expect((error as SignInError).message).toContain(text);
    expect((error as SignInError).final, text).toBe(final);
  }
});

test("texts of an issuer are clipped", () => {
  expect(refusal("corp", "x", "y".repeat(1_000))).toHaveLength("corp refused the sign-in: ".length + 301);
  expect(refusal("corp", 7, "y")).toBe("");
});
