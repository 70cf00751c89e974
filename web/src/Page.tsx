import { useEffect, useMemo, useState } from "preact/hooks";
import { Client, type APIError } from "./api/client";
import type { Choice } from "./api/types";
import { ActiveTasks } from "./parts/ActiveTasks";
import { Connection } from "./parts/Connection";
import { Costs } from "./parts/Costs";
import { Empty } from "./parts/Empty";
import { Events } from "./parts/Events";
import { HaltForm } from "./parts/HaltForm";
import { Halts } from "./parts/Halts";
import { Members } from "./parts/Members";
import { Questions } from "./parts/Questions";
import { RecentTasks } from "./parts/RecentTasks";
import { SendForm } from "./parts/SendForm";
import { SignInForm } from "./parts/SignInForm";
import { Stats } from "./parts/Stats";
import { TeamChooser } from "./parts/TeamChooser";
import { TracePanel } from "./parts/TracePanel";
import { usePlace } from "./state/link";
import { keepKey, keptSession, type Session } from "./state/session";
import { useHalts } from "./state/useHalts";
import { merge, useQuestions } from "./state/useQuestions";
import { useTeam } from "./state/useTeam";
import { useTrace } from "./state/useTrace";
import { within } from "./text";

interface Props {
  base: string;
  /** Whether the page has just been opened by a sign-in. */
  signedIn: boolean;
  /** Why the last sign-in failed, "" if it did not. */
  failure: string;
}

/** SignedIn is the session of the user. */
interface SignedIn {
  session: Session;
  /** Why the server has rejected it, null if it has not. */
  ended: APIError | null;
}

/** whyEnded says why the user has to sign in again. */
function whyEnded(session: Session, error: APIError, fresh: boolean): string {
  if (session.by === "key") return "Unknown API key. Check it, or ask the operator of the server for one.";
  if (fresh) {
    return `This server does not accept the token of ${session.issuer}; check that ${session.issuer} issues signed JSON web tokens with one of the audiences in the configuration. The server says: ${error.message}.`;
  }
  return `The sign-in with ${session.issuer} has ended: ${error.message}.`;
}

/**
 * Page is the Team Monitor. It holds the state that its parts share.
 * Add other views of a task next to TracePanel, and views of a team next to Members.
 */
export function Page({ base, signedIn, failure }: Props) {
  const [{ session, ended }, setUser] = useState<SignedIn>(() => ({ session: keptSession(), ended: null }));
  const [choices, setChoices] = useState<Choice[] | null>(null);
  const [trouble, setTrouble] = useState(""); // why listing the teams failed
  const place = usePlace();
  const rejected = (error: APIError) => setUser((now) => (now.session === session ? { session, ended: error } : now));
  const client = useMemo(() => new Client(base, session, rejected), [base, session]);
  const state = useTeam(client, place.team);
  const questions = useQuestions(client);
  const [halts, readHalts] = useHalts(client);
  const root = place.task.split("~")[0] ?? "";
  const followed = state.team?.active?.some((t) => within(place.task, t.taskId)) ?? false; // its events are part of the team's stream
  const traced = useTrace(client, place.task, `${state.heard.get(root)} ${state.connections}`, followed);

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

  const use = (next: Session) => {
    setUser({ session: next, ended: null });
    setChoices(null);
  };
  const signIn = ended && (
    <SignInForm
      base={base}
      why={session.by ? whyEnded(session, ended, signedIn && !choices) : failure}
      enter={(k) => {
        session.forget(); // a renewal that is under way must not replace the key
        keepKey(k);
        use(keptSession());
      }}
    />
  );
  if (signIn && !choices) {
    return (
      <main class="key">
        <h1>Team Monitor</h1>
        {signIn}
      </main>
    );
  }
  const open = (task: string) => place.go({ team: place.team, task });
  const forget = () => {
    session.forget();
    use(keptSession());
  };
  const option = session.by && " --token KEY";
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
        {session.by && (
          <button title={session.issuer && `Signed in with ${session.issuer}`} onClick={forget}>
            {session.by === "key" ? "Forget key" : "Sign out"}
          </button>
        )}
      </header>
      <main>
        {signIn && <section class="key">{signIn}</section>}
        {choices?.length === 0 && !place.team && (
          <Empty say="This server has no teams." command={`team-server teams apply -f team.yaml${option}`} base={base} />
        )}
        {trouble && !choices && <Empty say={trouble} />}
        {state.connection === "refused" && !signIn && <Empty say={state.refusal} command={`team-server agents ls${option}`} base={base} />}
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
