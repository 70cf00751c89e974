import { useEffect, useReducer } from "preact/hooks";
import type { Client } from "../api/client";
import type { WatchTeamResponse } from "../api/types";
import { initial, reduce, type State } from "./store";

/** The interval in ms at which received messages are shown together, because a busy team sends more than a screen can show. */
const batch = 50;

/** useTeam watches a team; "" means none. */
export function useTeam(client: Client, team: string): State {
  const [state, dispatch] = useReducer(reduce, initial);
  useEffect(() => {
    dispatch({ kind: "left" });
    if (!team) return;
    const end = new AbortController();
    let waiting: WatchTeamResponse[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      dispatch({ kind: "messages", messages: waiting });
      waiting = [];
    };
    void client.watch(
      team,
      {
        messages: (messages) => {
          waiting.push(...messages);
          timer ??= setTimeout(show, batch);
        },
        opened: (open) => dispatch({ kind: "opened", open }),
        refused: (error) => dispatch({ kind: "refused", text: error.message }),
      },
      end.signal,
    );
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [client, team]);
  return state;
}
