import { afterEach, expect, test, vi } from "vitest";
import type { Session } from "../state/session";
import { Client } from "./client";

afterEach(() => void vi.unstubAllGlobals());

const refused = () => new Response(JSON.stringify({ error: { message: "the token has expired" } }), { status: 401 });

/** server accepts only one token, and returns the tokens that it was sent. */
function server(accepts: string): (string | null)[] {
  const sent: (string | null)[] = [];
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    const token = new Headers(init.headers).get("Authorization");
    sent.push(token);
    return Promise.resolve(token === `Bearer ${accepts}` ? new Response(JSON.stringify({ task: { id: String(init.body) } })) : refused());
  });
  return sent;
}

/** session returns one that renews its token n times. */
function session(n: number): Session {
  let token = 0;
  return {
    by: "token",
    issuer: "corp",
    bearer: () => Promise.resolve(`t${token}`),
    renew: () => Promise.resolve(token < n && ++token > 0),
    forget: () => undefined,
  };
}

test("a rejected call is repeated once with a new token", async () => {
  const sent = server("t1");
  const client = new Client("https://team.example/", session(1), () => expect.unreachable());
  expect(await client.send("zoo", "m1", "hello")).toContain("hello");
  expect(sent).toEqual(["Bearer t0", "Bearer t1"]);
});

test("after a rejection of the new token too, or without one, no more requests are sent", async () => {
  for (const renewals of [0, 9]) {
    const sent = server("another");
    const errors: string[] = [];
    const client = new Client("https://team.example/", session(renewals), (e) => errors.push(e.message));
    await expect(client.questions()).rejects.toThrow("the token has expired");
    await expect(client.questions()).rejects.toThrow("the token has expired");
    await expect(client.halts()).rejects.toThrow("the token has expired");
    expect(sent).toHaveLength(renewals ? 2 : 1);
    expect(errors).toEqual(["the token has expired"]);
  }
});
