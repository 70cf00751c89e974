import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { follow, Parser, type Frame } from "./sse";

test("the frames do not depend on the pieces of a stream", () => {
  const text = ": hello\n\nid: 7\ndata: one\ndata:two\n\r\nevent: error\r\ndata: {}\r\n\r\nid\ndata\n\nretry: 1\n\n";
  const want: Frame[] = [
    { id: "7", event: "", data: "one\ntwo" },
    { id: "7", event: "error", data: "{}" },
    { id: "", event: "", data: "" },
  ];
  for (let size = 1; size <= text.length; size++) {
    const parser = new Parser();
    const got: Frame[] = [];
    for (let i = 0; i < text.length; i += size) got.push(...parser.push(text.slice(i, i + size)));
    expect(got, `in pieces of ${size}`).toEqual(want);
  }
});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("follow resumes after the last complete frame, and stops when it is rejected for good", async () => {
  const answers = ["id: 1\ndata: a\n\nid: 2\nda", "", "id: 2\ndata: b\n\nevent: error\ndata: x\n\n"];
  const asked: string[] = [];
  const got: string[] = [];
  const open: boolean[] = [];
  const done = follow(
    {
      open: (last) => {
        asked.push(last);
        const answer = answers.shift();
        return answer === undefined ? Promise.reject(new Error("final")) : Promise.resolve(new Response(answer));
      },
      frames: (frames) => got.push(...frames.map((f) => f.data)),
      opened: (o) => open.push(o),
      final: (e) => e instanceof Error && e.message === "final",
    },
    new AbortController().signal,
  );
  await vi.runAllTimersAsync();
  await done;
  expect(got).toEqual(["a", "b"]);
  expect(asked).toEqual(["", "1", "1", "2"]);
  expect(open).toEqual([true, false, true, false, true, false]);
});

test("a silent connection is closed", async () => {
  const end = new AbortController();
  let opened = 0;
  const done = follow(
    {
      open: (_, signal) => {
        opened++;
        return new Promise((_, no) => signal.addEventListener("abort", () => no(new Error("gone"))));
      },
      frames: () => undefined,
      opened: () => undefined,
      final: () => false,
    },
    end.signal,
  );
  await vi.advanceTimersByTimeAsync(39_000);
  expect(opened).toBe(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(opened).toBe(2);
  end.abort();
  await vi.runAllTimersAsync();
  await done;
});
