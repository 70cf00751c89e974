import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { APIError } from "../api/client";
import { merge, pace, poll } from "./useQuestions";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("poll reads while wanted, keeps the value after a failure, and shows nothing after the abort", async () => {
  const answers: (string | null)[] = ["a", null, "b", "late"];
  const shown: string[] = [];
  let wanted = false;
  let read = 0;
  const end = new AbortController();
  const done = poll(
    async () => {
      const answer = answers[read++];
      if (answer === "late") end.abort();
      if (answer == null) throw new Error("away");
      return answer;
    },
    (s) => shown.push(s),
    () => wanted,
    end.signal,
  );
  await vi.advanceTimersByTimeAsync(3 * pace);
  expect(read, "while nobody looks").toBe(0);
  wanted = true;
  await vi.advanceTimersByTimeAsync(pace);
  expect(shown).toEqual(["a"]);
  await vi.advanceTimersByTimeAsync(pace);
  expect(shown).toEqual(["a"]);
  await vi.advanceTimersByTimeAsync(pace);
  expect(shown).toEqual(["a", "b"]);
  await vi.advanceTimersByTimeAsync(9 * pace);
  await done;
  expect([read, shown]).toEqual([4, ["a", "b"]]);
});

test("poll ends when the user may not read the value", async () => {
  let read = 0;
  const done = poll(
    () => Promise.reject(new APIError(++read < 3 ? 503 : 403, "", "no")),
    () => expect.unreachable(),
    () => true,
    new AbortController().signal,
  );
  await vi.advanceTimersByTimeAsync(9 * pace);
  await done;
  expect(read).toBe(3);
});

test("merge lists the watched questions first, then those of other teams and to roles", () => {
  const q = (taskId: string, agentId: string, byRole = false) => ({ taskId, agentId, byRole, question: { question: "q" } });
  const all = merge("desk", [q("1", "desk")], [q("1", "desk"), q("2", "house"), q("3", "desk", true)]);
  expect(all.map((x) => x.taskId)).toEqual(["1", "2", "3"]);
});
