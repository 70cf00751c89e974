import type { Choice } from "../api/types";

interface Props {
  choices: Choice[] | null;
  team: string;
  choose: (id: string) => void;
  refresh: () => void;
}

/** TeamChooser selects the team or agent to watch. */
export function TeamChooser({ choices, team, choose, refresh }: Props) {
  const known = choices ?? [];
  const options = (teams: boolean) =>
    known
      .filter((c) => c.team === teams)
      .map((c) => (
        <option key={c.id} value={c.id} selected={c.id === team}>
          {c.name}
        </option>
      ));
  return (
    <label class="chooser">
      Team{" "}
      <select id="team" value={team} onFocus={refresh} onChange={(e) => choose(e.currentTarget.value)}>
        {!known.some((c) => c.id === team) && <option value={team}>{team || "none"}</option>}
        <optgroup label="Teams">{options(true)}</optgroup>
        <optgroup label="Agents">{options(false)}</optgroup>
      </select>
    </label>
  );
}
