import { expect, test } from "vitest";
import { brief, clock, describe, dollars, halted, money, seconds, short, span, stopped, within } from "./text";

test("numbers, durations and IDs are short", () => {
  expect([short(0), short(9_999), short(12_345), short(123_456), short(2_500_000)]).toEqual(["0", "9,999", "12.3k", "123k", "2.5M"]);
  expect([money(undefined), money({ costMicros: "12" }), money({ costMicros: "12000" }), money({ costMicros: "1230000" })]).toEqual([
    "",
    "$0.000012",
    "$0.0120",
    "$1.23",
  ]);
  expect(money({ costMicros: "12000", estimated: true })).toBe("~$0.0120");
  expect([dollars(undefined), dollars({ costMicros: "1230000", estimated: true })]).toEqual(["$0", "$1.23"]);
  expect([span(0.2), span(42), span(1_234), span(61_000), span(3_660_000)]).toEqual(["<1ms", "42ms", "1.2s", "1m 1s", "1h 1m"]);
  expect([seconds(undefined), seconds("0.757071305s")]).toEqual(["–", "0.8s"]);
  expect(brief("01a20396-556c-7196-9c1c-e9c10d26afc9~1.2")).toBe("0d26afc9~1.2");
});

test("known and unknown events have texts", () => {
  expect(describe({ seq: "1", decided: { rule: "story", reason: "turn == 1", steps: [{ id: "1", member: "newsroom" }] } })).toEqual({
    level: "normal",
    text: 'rule "story" → newsroom because turn == 1',
  });
  expect(describe({ seq: "1", ended: { outcome: "OUTCOME_FAILED", error: { reason: "UNAVAILABLE", message: "gone" } } })).toEqual({
    level: "problem",
    text: "failed UNAVAILABLE: gone",
  });
  expect(describe({ seq: "1", time: "", ...{ paused: {} } })).toEqual({ level: "detail", text: "paused" });
});

test("a time on another day includes the date", () => {
  const now = new Date(2026, 2, 1, 9, 30);
  const at = (...d: [number, number, number, number, number]) => clock(new Date(...d).toISOString(), now);
  expect([at(2026, 2, 1, 0, 5), at(2026, 1, 28, 23, 59), at(2025, 11, 31, 23, 59), clock(undefined)]).toEqual([
    "00:05:00",
    "28 Feb 23:59:00",
    "31 Dec 2025 23:59:00",
    "",
  ]);
});

test("the ID of a task shows which task it belongs to", () => {
  expect(["t", "t~1", "t~1.2", "t~12", "u"].map((id) => [within(id, "t"), within(id, "t~1")])).toEqual([
    [true, false],
    [true, true],
    [true, true],
    [true, false],
    [false, false],
  ]);
});

test("a receipt says what was stopped and what may still be running", () => {
  expect(stopped({})).toBe("Halted. 0 tasks were stopped.");
  expect(
    stopped({
      total: 1,
      tasks: [{ taskId: "t", receipt: { entries: [{ agent: "desk/far", remoteTaskId: "r", unconfirmed: true }, { agent: "desk/near" }] } }],
      stragglers: ["r1"],
    }),
  ).toBe(
    "Halted. 1 task was stopped. May still be working on other servers: desk/far (task r). These servers have not confirmed the halt: r1.",
  );
  expect(halted({ kind: "HALT_KIND_SERVER", reason: "", by: "", at: "" })).toBe("the server");
  expect(halted({ kind: "HALT_KIND_TEAM", name: "desk", reason: "", by: "", at: "" })).toBe("team desk");
  expect(halted({ kind: "HALT_KIND_TEAM", name: "desk", account: "acme", reason: "", by: "", at: "" })).toBe("team desk of account acme");
});
