import { afterEach, expect, test, vi } from "vitest";
import { challenge, type Issuer } from "../api/oauth";
import { fakeStorage } from "../test/storage";
import { keptSession } from "./session";
import { answerIn, beginSignIn, finishSignIn, takeBegun, type Answer } from "./signIn";

const issuer: Issuer = {
  name: "corp",
  issuer: "https://id.example",
  authorizationEndpoint: "https://id.example/authorize",
  tokenEndpoint: "https://id.example/token",
  clientId: "monitor",
  scopes: ["openid"],
};

afterEach(() => void vi.unstubAllGlobals());

const answer = (state: string, more: Partial<Answer> = {}): Answer => ({ state, code: "c", error: "", description: "", issuer: null, ...more });

/** begin begins a sign-in and returns its state. */
async function begin(storage: Storage, from = issuer): Promise<string> {
  return new URL(await beginSignIn(from, "https://team.example/", "#team=a&task=1~2", storage)).searchParams.get("state") ?? "";
}

test("only a query with a state and a code or an error is an answer", () => {
  for (const search of ["", "?code=c", "?state=s", "?error=e", "?A2A-Version=1.0"]) expect(answerIn(search), search).toBeNull();
  expect(answerIn("?code=c%2B&state=s&iss=https%3A%2F%2Fid.example")).toEqual(answer("s", { code: "c+", issuer: "https://id.example" }));
  expect(answerIn("?state=s&error=access_denied&error_description=No%20way")).toEqual(
    answer("s", { code: "", error: "access_denied", description: "No way" }),
  );
});

test("a sign-in is finished once, with its own state and verifier, and brings back what was open", async () => {
  const storage = fakeStorage();
  const url = new URL(await beginSignIn(issuer, "https://team.example/", "#team=a&task=1~2", storage));
  const begun = takeBegun(answer(url.searchParams.get("state") ?? ""), storage);
  expect(begun.hash).toBe("#team=a&task=1~2");
  expect(await challenge(begun.verifier)).toBe(url.searchParams.get("code_challenge"));
  expect(() => takeBegun(answer(begun.state), storage)).toThrow("belongs to no sign-in of this tab");
  expect(storage.length).toBe(0);
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    expect((init.body as URLSearchParams).get("code_verifier")).toBe(begun.verifier);
    return Promise.resolve(new Response(JSON.stringify({ access_token: "token", token_type: "Bearer" })));
  });
  await finishSignIn(answer(begun.state), begun, storage);
  expect(await keptSession(storage).bearer()).toBe("token");
});

test("an answer with another state is refused, and ends the sign-in", async () => {
  for (const wrong of ["", "x"]) {
    const storage = fakeStorage();
    const state = await begin(storage);
    expect(() => takeBegun(answer(wrong), storage)).toThrow("belongs to no sign-in of this tab");
    expect(() => takeBegun(answer(state), storage)).toThrow("belongs to no sign-in of this tab");
  }
  expect(() => takeBegun(answer(""), fakeStorage())).toThrow("belongs to no sign-in of this tab");
});

test("an answer of another issuer, or without the issuer that names itself, gets no request", async () => {
  vi.stubGlobal("fetch", () => expect.unreachable());
  for (const [from, iss] of [
    [issuer, "https://evil.example"],
    [issuer, ""],
    [{ ...issuer, namesIssuer: true }, null],
  ] as const) {
    const storage = fakeStorage();
    const begun = takeBegun(answer(await begin(storage, from)), storage);
    await expect(finishSignIn(answer(begun.state, { issuer: iss }), begun, storage)).rejects.toThrow("is not from corp");
    expect(storage.length).toBe(0);
  }
  const storage = fakeStorage();
  const begun = takeBegun(answer(await begin(storage)), storage);
  const denied = answer(begun.state, { code: "", error: "access_denied", description: "<b>No</b>" });
  await expect(finishSignIn(denied, begun, storage)).rejects.toThrow("corp refused the sign-in: <b>No</b>");
});
