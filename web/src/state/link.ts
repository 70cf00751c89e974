import { useEffect, useState } from "preact/hooks";

/** Link is what the address shows: #team=…&task=…; "" is none. */
export interface Link {
  team: string;
  task: string;
}

/** parse reads the part of an address behind #. */
export function parse(hash: string): Link {
  const q = new URLSearchParams(hash.replace(/^#/, ""));
  return { team: q.get("team") ?? "", task: q.get("task") ?? "" };
}

/** format is the part of an address for a link; parse reads it. */
export function format({ team, task }: Link): string {
  const q = new URLSearchParams({ ...(team && { team }), ...(task && { task }) });
  return `#${q.toString().replaceAll("%7E", "~")}`;
}

/** Place is where the page is, and goes elsewhere: back and forward work. */
export interface Place extends Link {
  go(to: Link): void;
  /** Corrects the place, without a step to go back. */
  correct(to: Link): void;
}

/** usePlace keeps the place in the address. */
export function usePlace(): Place {
  const [link, setLink] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setLink(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return {
    ...link,
    go: (to) => (location.hash = format(to)),
    correct: (to) => {
      history.replaceState(null, "", format(to));
      setLink(to);
    },
  };
}
