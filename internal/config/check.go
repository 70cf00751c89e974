package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/askuser"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/references"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

func (k *checker) check() {
	k.names()
	if a := k.at("server", "auth"); a.Found() {
		a.FaultEmpty("auth")
		auth.Check(k.Server.GetServer().GetAuth(), a.Report)
	}
	k.nameEndpoints()
	k.models()
	k.addresses()
	k.tools()
	k.leaders()
	for _, id := range k.ids() {
		if k.doc.Ended() {
			return
		}
		k.uses[id] = references.Of(k.Server, id)
		k.references(id)
		if a := k.Server.GetAgents()[id]; a != nil {
			k.agent(k.at("agents", id), id, a)
		}
		if t := k.Server.GetTeams()[id]; t != nil {
			k.team(k.at("teams", id), id, t)
		}
	}
	if id := k.Server.GetServer().GetDefaultAgent(); id != "" {
		k.known(references.Reference{Kind: references.Agent, Name: id, By: "default_agent is", Path: []any{"server", "default_agent"}})
	}
	if id := k.Server.GetServer().GetOpenai().GetTitleModel(); id != "" {
		k.known(references.Reference{Kind: references.Agent, Name: id, By: "title_model is", Path: []any{"server", "openai", "title_model"}})
	}
	k.cycles()
	k.markUsed()
	k.inheritance()
	for _, p := range partsOf(k.Server, k.Program) {
		p.check(k)
	}
	k.needs()
	k.Shipped = ship(k.Server.GetModels())
	for _, name := range sorted(k.Server.GetServer().GetAccounts()) {
		account.Check(k.Server.GetServer().GetAccounts()[name], k.at("server", "accounts", name).ReportKey)
	}
	account.CheckEvery(k.Server.GetServer().GetLimits().GetAccount(), k.at("server", "limits", "account").ReportKey)
	k.costs()
	k.files()
}

// names reports reserved words, ids used by both an agent and a team, and additions that set api, which says what additions
// may use.
func (k *checker) names() {
	for _, id := range k.ids() {
		at := k.at(k.sectionOf(id), id)
		if plainID.MatchString(id) && !agent.ValidID(id) {
			at.KeyFault(fmt.Sprintf("%q is a reserved word", id), "choose another id; this one names a path of the server")
		}
		if k.additions[id] != "" && k.accessOf(id).GetApi() {
			at.At("api").KeyFault(`"api" is only allowed in the server's configuration file`, "remove it: the teams of an account may use what the account makes by the API")
		}
	}
	for id := range k.Server.GetTeams() {
		if k.Server.GetAgents()[id] != nil {
			k.at("teams", id).KeyFault(fmt.Sprintf("team %q has the id of an agent", id), "agents and teams share one id space; the agent is in "+k.at("agents", id).Describe())
		}
	}
}

// models checks the fallbacks of models, their media types, and that their providers have the settings of the models and of
// their agents.
func (k *checker) models() {
	for _, name := range sorted(k.Server.GetModels()) {
		m, at := k.Server.GetModels()[name], k.at("models", name)
		seen := map[string]bool{name: true}
		for i, next := range m.GetFallback() {
			u := references.Reference{Kind: references.Model, Name: next, By: fmt.Sprintf("the fallback of model %q", name), Path: at.At("fallback", i).Path()}
			k.model(u)
			if seen[next] {
				k.at(u.Path...).Fault(fmt.Sprintf("model %q falls back to %q twice", name, next), "each model is asked once; remove this one")
			}
			seen[next] = true
		}
		takes, known := model.Formats[m.GetProvider()]
		for i, media := range m.GetAccepts() {
			if known && len(agent.CommonMedia([]string{media}, takes.Types)) == 0 {
				at.At("accepts", i).Fault(fmt.Sprintf("models of the provider %q take no files of type %s", m.GetProvider(), media), "remove it; the provider takes "+strings.Join(takes.Types, ", "))
			}
		}
		k.settings(at.At("settings"), name, m.GetSettings())
	}
}

// settings reports settings that the provider of a model does not have.
func (k *checker) settings(at source.Place, name string, s *teamv1.ModelSettings) {
	faults := model.Unsupported(k.Server.GetModels()[name].GetProvider(), s)
	for _, key := range sorted(faults) {
		at.At(key).KeyFault(faults[key], fmt.Sprintf("remove it, or use another model than %q", name))
	}
}

// tools reports effects of operations that a tool does not allow, and approvals that cannot be used.
func (k *checker) tools() {
	if k.Server.GetTools()[askuser.Name] != nil {
		k.at("tools", askuser.Name).KeyFault(fmt.Sprintf("%q is built in", askuser.Name), "give this tool another name; agents may list "+askuser.Name+" without it")
	}
	for _, name := range sorted(k.Server.GetTools()) {
		modes.CheckApproveTools(k.at("tools", name, "approve"), k.Server.GetTools()[name].GetApprove())
		m := k.Server.GetTools()[name].GetMcp()
		for _, of := range sorted(m.GetEffects()) {
			if of != "*" && len(m.GetAllow()) > 0 && !slices.Contains(m.GetAllow(), of) {
				k.at("tools", name, "mcp", "effects", of).KeyFault(fmt.Sprintf("tool %q declares effects of %q, but does not allow it", name, of), "add it to allow, or remove it here")
			}
		}
	}
}

func (k *checker) agent(at source.Place, id string, a *teamv1.AgentConfig) {
	for _, name := range references.WithFallbacks(k.Server, a.GetModel()) {
		k.settings(at.At("settings"), name, a.GetSettings())
	}
	if Kind(a) != "model" {
		skills(at.At("skills"), a.GetSkills(), "instructions of a skill belong to an agent with a model")
	}
	modes.CheckLimits(at.At("limits"), a.GetLimits())
	checkInputs(at, a.GetInputs())
	modes.CheckInstructions(at.At("instructions"), fmt.Sprintf("agent %q", id), a.GetInstructions(), modes.InputNames(a.GetInputs()))
	k.patterns(at, a.GetGuardrails())
	extendedCards(at, a.GetExtendedCard())
}

func (k *checker) team(at source.Place, id string, t *teamv1.TeamConfig) {
	modes.Check(at, id, t, modes.Known{IsTeam: func(id string) bool { return k.Server.GetTeams()[id] != nil }, Presumed: k.presumed[id]})
	checkInputs(at, t.GetInputs())
	k.patterns(at, t.GetGuardrails())
	extendedCards(at, t.GetExtendedCard())
}

// extendedCards reports skills with instructions, which a card does not publish.
func extendedCards(at source.Place, cards []*teamv1.ExtendedCard) {
	for i, c := range cards {
		skills(at.At("extended_card", i, "skills"), c.GetSkills(), "cards do not contain the instructions of skills")
	}
}

// skills reports instructions of skills that no model reads.
func skills(at source.Place, all []*teamv1.Skill, message string) {
	for i, s := range all {
		if s.GetInstructions() != "" {
			at.At(i, "instructions").KeyFault(message, "remove them here")
		}
	}
}

var plainID = regexp.MustCompile(`^` + agent.IDPattern + `$`)
