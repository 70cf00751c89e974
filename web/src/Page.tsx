import { useEffect, useMemo, useState } from "preact/hooks";
import { Client } from "./api/client";
import type { Choice } from "./api/types";
import { ActiveTasks } from "./parts/ActiveTasks";
import { Connection } from "./parts/Connection";
import { Costs } from "./parts/Costs";
import { Empty } from "./parts/Empty";
import { Events } from "./parts/Events";
import { HaltForm } from "./parts/HaltForm";
import { Halts } from "./parts/Halts";
import { KeyForm } from "./parts/KeyForm";
import { Members } from "./parts/Members";
import { Questions } from "./parts/Questions";
import { RecentTasks } from "./parts/RecentTasks";
import { SendForm } from "./parts/SendForm";
import { Stats } from "./parts/Stats";
import { TeamChooser } from "./parts/TeamChooser";
import { TracePanel } from "./parts/TracePanel";
import { forgetKey, keepKey, keptKey } from "./state/key";
import { usePlace } from "./state/link";
import { useHalts } from "./state/useHalts";
import { merge, useQuestions } from "./state/useQuestions";
import { useTeam } from "./state/useTeam";
import { useTrace } from "./state/useTrace";
import { within } from "./text";

/**
 * Page is the Team Monitor. It holds the state that its parts share.
 * Add other views of a task next to TracePanel, and views of a team next to Members.
 */
export function Page({ base }: { base: string }) {
  const [key, setKey] = useState(keptKey);
  const [refused, setRefused] = useState<string | null>(null); // the key that the server rejected
  const [choices, setChoices] = useState<Choice[] | null>(null);
  const [trouble, setTrouble] = useState(""); // why listing the teams failed
  const place = usePlace();
  const client = useMemo(() => new Client(base, key, () => setRefused(key)), [base, key]);
  const wantsKey = refused === key;
  const state = useTeam(client, wantsKey ? "" : place.team);
  const questions = useQuestions(client, !wantsKey);
  const [halts, readHalts] = useHalts(client, !wantsKey);
  const root = place.task.split("~")[0] ?? "";
  const followed = state.team?.active?.some((t) => within(place.task, t.taskId)) ?? false; // its events are part of the team's stream
  const traced = useTrace(client, wantsKey ? "" : place.task, `${state.heard.get(root)} ${state.connections}`, followed);

  const list = () =>
    void client.choices().then(
      (all) => {
        setChoices(all);
        setTrouble("");
      },
      (e: unknown) => setTrouble(e instanceof Error ? e.message : String(e)),
    );
  useEffect(list, [client, state.connections]);
  useEffect(() => {
    const first = choices?.[0];
    if (!place.team && first) place.correct({ team: first.id, task: place.task });
  }, [choices, place.team]);
  useEffect(() => {
    document.title = [state.team?.name, "Team Monitor"].filter(Boolean).join(" – ");
  }, [state.team?.name]);

  if (wantsKey) {
    return (
      <KeyForm
        refused={key !== ""}
        enter={(k) => {
          keepKey(k);
          setKey(k);
          setRefused(null);
        }}
      />
    );
  }
  const open = (task: string) => place.go({ team: place.team, task });
  const forget = () => {
    forgetKey();
    setKey("");
  };
  const team = state.team?.teamId === place.team ? state.team : null; // ignore the state of the previous team
  return (
    <>
      <header>
        <h1>Team Monitor</h1>
        <TeamChooser choices={choices} team={place.team} choose={(id) => place.go({ team: id, task: "" })} refresh={list} />
        <Connection state={state.connection} known={place.team !== ""} />
        {team && (
          <p class="about">
            {[team.mode, team.revision && `revision ${team.revision.slice(0, 8)}`, team.detail].filter(Boolean).join(" · ")}
          </p>
        )}
        {key && <button onClick={forget}>Forget key</button>}
      </header>
      <main>
        {choices?.length === 0 && !place.team && (
          <Empty say="This server has no teams." command={`team-server teams apply -f team.yaml${key && " --token KEY"}`} base={base} />
        )}
        {trouble && !choices && <Empty say={trouble} />}
        {state.connection === "refused" && <Empty say={state.refusal} command={`team-server agents ls${key && " --token KEY"}`} base={base} />}
        <Halts client={client} halts={halts ?? []} changed={readHalts} />
        <Questions
          client={client}
          questions={merge(team ? place.team : "", team?.questions ?? [], questions)}
          team={place.team}
          open={(of, task) => place.go({ team: of, task })}
        />
        {team && (
          <>
            <Stats team={team} />
            <div class="columns">
              <div class="column">
                <ActiveTasks client={client} team={team} chosen={place.task} open={open} base={base} />
                <RecentTasks client={client} team={team} connections={state.connections} chosen={place.task} open={open} />
                <Members members={team.members ?? []} />
              </div>
              <TracePanel client={client} task={place.task} traced={traced} said={state.said} close={() => open("")} />
            </div>
            <Events key={team.teamId} rows={state.rows} total={state.total} team={team.teamId} base={base} />
            <Costs key={`costs-${team.teamId}`} client={client} team={team} base={base} />
            {halts && (
              <HaltForm
                key={`halt-${team.teamId}`}
                client={client}
                team={team}
                agent={choices?.some((c) => c.id === team.teamId && !c.team) ?? false}
                changed={readHalts}
              />
            )}
            <SendForm key={`to-${team.teamId}`} client={client} team={team} sent={open} />
          </>
        )}
      </main>
    </>
  );
}
