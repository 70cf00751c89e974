import { expect, test } from "vitest";
import { format, parse } from "./link";

test("parse reverses format", () => {
  for (const link of [
    { team: "", task: "" },
    { team: "newsroom", task: "" },
    { team: "a b&c=d#e", task: "01a2~1.2" },
  ]) {
    expect(parse(format(link))).toEqual(link);
  }
  expect(format({ team: "newsroom", task: "01a2~1.2" })).toBe("#team=newsroom&task=01a2~1.2");
});
