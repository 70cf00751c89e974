import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Issuer } from "../api/oauth";
import { fakeStorage } from "../test/storage";
import { keepKey, keepTokens, keptSession } from "./session";

const issuer: Issuer = { name: "corp", issuer: "https://id.example", tokenEndpoint: "https://id.example/token", clientId: "monitor", scopes: ["openid"] };

beforeEach(() => void vi.useFakeTimers({ now: 1_000_000 }));
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** signedIn returns storage with tokens that are valid for ten minutes. */
function signedIn(refresh = "r0"): Storage {
  const storage = fakeStorage();
  keepTokens(issuer, { access: "t0", refresh, issued: Date.now(), expires: Date.now() + 600_000 }, storage);
  return storage;
}

/** issues has the issuer answer with t1, t2 and so on, or fail with a status, and returns the refresh tokens it was sent. */
function issues(fails: { status: number }): string[] {
  const sent: string[] = [];
  vi.stubGlobal("location", { origin: "https://team.example" });
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    sent.push((init.body as URLSearchParams).get("refresh_token") ?? "");
    const n = sent.length;
    const body = fails.status ? { error: "invalid_grant" } : { access_token: `t${n}`, token_type: "Bearer", refresh_token: `r${n}`, expires_in: 600 };
    return Promise.resolve(new Response(JSON.stringify(body), { status: fails.status || 200 }));
  });
  return sent;
}

test("a key and a token replace each other, and are forgotten", async () => {
  const storage = signedIn();
  expect(keptSession(storage)).toMatchObject({ by: "token", issuer: "corp" });
  keepKey("sesame", storage);
  expect(storage.length).toBe(1);
  const session = keptSession(storage);
  expect([session.by, await session.bearer(), await session.renew("sesame")]).toEqual(["key", "sesame", false]);
  session.forget();
  expect(storage.length).toBe(0);
  expect(await keptSession(storage).bearer()).toBe("");
});

test("a token is renewed once for all calls, before it expires, and the new one is stored", async () => {
  const sent = issues({ status: 0 });
  const storage = signedIn();
  const session = keptSession(storage);
  expect(await session.bearer()).toBe("t0");
  vi.advanceTimersByTime(541_000);
  expect(await Promise.all([session.bearer(), session.bearer(), session.renew("t0")])).toEqual(["t1", "t1", true]);
  expect(sent).toEqual(["r0"]);
  expect(await keptSession(storage).bearer()).toBe("t1");
  expect(await session.renew("t0")).toBe(true); // rejected before it was renewed
  expect(sent).toEqual(["r0"]);
  expect(await session.renew("t1")).toBe(true);
  expect(sent).toEqual(["r0", "r1"]);
});

test("a token without a refresh token is sent until the server rejects it", async () => {
  const sent = issues({ status: 0 });
  const session = keptSession(signedIn(""));
  vi.advanceTimersByTime(700_000);
  expect(await session.bearer()).toBe("t0");
  expect(await session.renew("t0")).toBe(false);
  expect(sent).toEqual([]);
});

test("a refused refresh token is not sent again", async () => {
  const sent = issues({ status: 400 });
  const storage = signedIn();
  const session = keptSession(storage);
  vi.advanceTimersByTime(700_000);
  expect(await session.bearer()).toBe("t0");
  expect(await session.renew("t0")).toBe(false);
  expect(await keptSession(storage).bearer()).toBe("t0");
  expect(sent).toEqual(["r0"]);
});

test("while the issuer fails, the token is used until it expires, and the refresh token stays", async () => {
  const fails = { status: 503 };
  issues(fails);
  const session = keptSession(signedIn());
  vi.advanceTimersByTime(550_000);
  expect(await session.bearer()).toBe("t0");
  vi.advanceTimersByTime(50_000);
  await expect(session.bearer()).rejects.toThrow("corp");
  await expect(session.renew("t0")).rejects.toThrow("corp");
  fails.status = 0;
  expect(await session.bearer()).toMatch(/^t\d$/);
});

test("a renewal that ends after the user has signed out stores nothing", async () => {
  issues({ status: 0 });
  const storage = signedIn();
  const session = keptSession(storage);
  vi.advanceTimersByTime(700_000);
  const renewed = session.bearer();
  session.forget();
  await renewed;
  expect(storage.length).toBe(0);
});
