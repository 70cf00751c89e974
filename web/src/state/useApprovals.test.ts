import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { pace, poll } from "./useApprovals";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("it is read while it is wanted, what cannot be read stays, and nothing is shown behind the end", async () => {
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
