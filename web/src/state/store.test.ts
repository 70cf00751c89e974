import { expect, test } from "vitest";
import type { Event, MonitorEvent, WatchTeamResponse } from "../api/types";
import { initial, maxRows, reduce, type State } from "./store";

function event(seq: number, kind: Partial<Event>, scope = ""): WatchTeamResponse {
  const event: MonitorEvent = { rootTaskId: "t", taskId: scope ? `t~${scope}` : "t", event: { seq: String(seq), ...kind } };
  return { event };
}

const told = (state: State, ...messages: WatchTeamResponse[]) => reduce(state, { kind: "messages", messages });

test("snapshots and updates set the team; a second snapshot marks a gap in the events", () => {
  let s = told(initial, { snapshot: { teamId: "a", mode: "swarm" } });
  expect(s.team?.mode).toBe("swarm");
  expect(s.rows).toEqual([]);
  s = told(s, event(1, { accepted: {} }), { update: { teamId: "a", mode: "workflow" } });
  expect(s.team?.mode).toBe("workflow");
  s = told(s, { snapshot: { teamId: "a" } }, event(9, { waiting: {} }));
  expect(s.rows.map((r) => r.event?.event.seq ?? "gap")).toEqual(["1", "gap", "9"]);
  expect(new Set(s.rows.map((r) => r.key)).size).toBe(3);
});

test("all events are counted and the newest are kept", () => {
  const s = told(initial, ...Array.from({ length: maxRows + 10 }, (_, i) => event(i + 1, { progress: {} })));
  expect(s.rows.length).toBe(maxRows);
  expect(s.rows[0]?.key).toBe("t:11");
  expect(s.total).toBe(maxRows + 10);
  expect(s.heard.get("t")).toBe(String(maxRows + 10));
});

test("streamed text grows, restarts, and is removed when its step ends", () => {
  let s = told(initial, event(1, { delta: { text: "ab" } }, "1"), event(2, { delta: { text: "c" } }, "1"));
  expect(s.said.get("t~1")).toBe("abc");
  s = told(s, event(3, { delta: { text: "x", restart: true } }, "1"));
  expect(s.said.get("t~1")).toBe("x");
  s = told(s, event(4, { ended: {} }, "1"));
  expect(s.said.size).toBe(0);
});

test("the previous state is not modified", () => {
  const before = told(initial, event(1, { accepted: {} }));
  const copy = structuredClone(before);
  told(before, event(2, { ended: {} }));
  expect(before).toEqual(copy);
});

test("the openings of the stream are counted", () => {
  let s = reduce(initial, { kind: "opened", open: true });
  s = reduce(s, { kind: "opened", open: false });
  expect(s.connection).toBe("reconnecting");
  s = reduce(s, { kind: "opened", open: true });
  expect([s.connection, s.connections]).toEqual(["live", 2]);
  expect(reduce(s, { kind: "left" })).toEqual(initial);
});
