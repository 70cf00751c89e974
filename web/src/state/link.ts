import { useEffect, useState } from "preact/hooks";

/** Link is the part of the URL after #: team=…&task=…; "" means none. */
export interface Link {
  team: string;
  task: string;
}

/** parse parses the part of a URL after #. */
export function parse(hash: string): Link {
  const q = new URLSearchParams(hash.replace(/^#/, ""));
  return { team: q.get("team") ?? "", task: q.get("task") ?? "" };
}

/** format returns the URL of a link, which begins with #. */
export function format({ team, task }: Link): string {
  const q = new URLSearchParams({ ...(team && { team }), ...(task && { task }) });
  return `#${q.toString().replaceAll("%7E", "~")}`;
}

/** Place is the current link, with functions that change it and the browser history. */
export interface Place extends Link {
  go(to: Link): void;
  /** Replaces the current link without a new entry in the history. */
  correct(to: Link): void;
}

/** usePlace returns the place in the URL of the page. */
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
