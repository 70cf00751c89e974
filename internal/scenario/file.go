// Package scenario runs tests of teams: the scenarios of *_test.yaml files, against the teams of
// the configuration next to them, within this process and without calling models or the network.
package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// fileSuffix is the suffix of the names of test files.
const fileSuffix = "_test.yaml"

// defaultTimeout is the time limit of a scenario that sets none, realTimeout that of one with real models.
const (
	defaultTimeout = 30 * time.Second
	realTimeout    = 5 * time.Minute
)

// File is a valid test file.
type File struct {
	// Path is the path as it was given to Load.
	Path string
	// Scenarios are in the order of the file.
	Scenarios []*Scenario

	doc *source.Document
}

// Scenario is a conversation with a team and the expected results.
type Scenario struct {
	// File is the file that contains the scenario.
	File *File
	// Name is the name of the scenario, Team the id of the team or agent that is tested.
	Name, Team string
	// Line is the line where the scenario begins, from 1.
	Line int

	def     *config.Config
	timeout time.Duration
	turns   []turn
	path    []any
	inputs  map[string]*structpb.Value
	real    bool // models are called
}

// turn is a message of the conversation with the expected results.
type turn struct {
	*teamv1.ScenarioTurn
	path  []any // path of the entry that contains send and want
	parts []*a2av1.Part
}

// want returns the path of a key of the expectation.
func (t *turn) want(path ...any) []any { return slices.Concat(t.path, []any{"want"}, path) }

// Loader reads test files. The zero value uses the file system and the environment of the process.
type Loader = config.Loader

// Load reads a test file and the configuration that it tests. If the file, its scripts or the
// configuration are invalid, the error is source.Faults and holds all faults.
func Load(l Loader, path string) (*File, error) { return load(l, path, false) }

// load is Load; with realModels, the models of the configuration are called instead of their scripts.
func load(l Loader, path string, realModels bool) (*File, error) {
	var m teamv1.ScenarioFile
	doc, err := l.Read(path, &m)
	if err != nil {
		return nil, err
	}
	r := &reader{loader: l, Document: doc, message: &m, file: &File{Path: path, doc: doc}, real: realModels}
	if err := r.read(); err != nil && !errors.Is(err, errFaults) {
		return nil, err
	}
	if faults := append(doc.Faults(), r.faults...); len(faults) > 0 {
		return nil, source.Tidy(faults)
	}
	return r.file, nil
}

// errFaults ends reading after faults were recorded.
var errFaults = errors.New("the file is invalid")

// reader reads one test file.
type reader struct {
	*source.Document
	loader  Loader
	message *teamv1.ScenarioFile
	file    *File
	faults  source.Faults // faults of scripts and of the configuration
	loaded  *config.Config
	real    bool // models are called
}

// read reads the configuration and the scenarios.
func (r *reader) read() error {
	common, err := r.standIns(nil, nil, r.message)
	if err != nil {
		return err
	}
	def, err := r.load(common)
	if err != nil {
		return err
	}
	r.loaded = def
	r.known(nil, r.message)
	for i, s := range r.message.GetScenarios() {
		if err := r.scenario([]any{"scenarios", i}, s, def, common); err != nil && !errors.Is(err, errFaults) {
			return err
		}
	}
	return nil
}

// scenario adds a scenario to the file.
func (r *reader) scenario(path []any, s *teamv1.Scenario, def *config.Config, common *config.StandIns) error {
	if len(s.GetModels())+len(s.GetAgents())+len(s.GetTools()) > 0 {
		r.known(path, s)
		in, err := r.standIns(path, common, s)
		if err != nil {
			return err
		}
		if def, err = r.load(in); err != nil {
			return err
		}
	}
	sc := &Scenario{
		File: r.file, Name: s.GetName(), Team: cmp.Or(s.GetTeam(), r.message.GetTeam(), defaultTeam(def)), Line: r.Line(path...), def: def, path: path, inputs: s.GetInputs().GetFields(), real: r.real,
		timeout: cmp.Or(s.GetTimeout().AsDuration(), r.message.GetTimeout().AsDuration(), defaultTimeout),
	}
	if r.real && s.GetTimeout() == nil && r.message.GetTimeout() == nil {
		sc.timeout = realTimeout
	}
	sc.turns = []turn{{ScenarioTurn: &teamv1.ScenarioTurn{Send: s.GetSend(), Parts: s.GetParts(), Answers: s.GetAnswers(), Want: s.GetWant()}, path: path}}
	if len(s.GetTurns()) > 0 {
		sc.turns = nil
		for i, t := range s.GetTurns() {
			sc.turns = append(sc.turns, turn{ScenarioTurn: t, path: slices.Concat(path, []any{"turns", i})})
		}
	}
	for i := range sc.turns {
		sc.turns[i].parts = r.parts(sc.turns[i].GetParts(), slices.Concat(sc.turns[i].path, []any{"parts"}))
	}
	r.check(sc)
	r.file.Scenarios = append(r.file.Scenarios, sc)
	return nil
}

// defaultTeam returns the agent that handles requests without a tenant, or "".
func defaultTeam(def *config.Config) string {
	if id := def.Server.GetServer().GetDefaultAgent(); id != "" {
		return id
	}
	ids := sorted(def.Server.GetTeams())
	if len(ids) == 0 {
		ids = sorted(def.Used)
	}
	if len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// load loads the configuration with stand-ins. Its faults are recorded in r.
func (r *reader) load(s *config.StandIns) (*config.Config, error) {
	if name := r.message.GetConfig(); name != "" && !r.loader.Exists(r.Path(name)) {
		r.Fault(fmt.Sprintf("config %q: the file does not exist", name), "the path is relative to this file", "config")
		return nil, errFaults
	}
	l := r.loader
	l.StandIns = s
	def, err := l.Load(r.config())
	var faults source.Faults
	if errors.As(err, &faults) {
		r.faults = append(r.faults, faults...)
		return nil, errFaults
	}
	if err != nil {
		return nil, err
	}
	if !r.real {
		shortenBackoff(def.Server)
	}
	return def, nil
}

// config returns the path of the configuration that is tested.
func (r *reader) config() string {
	if name := r.message.GetConfig(); name != "" {
		return r.Path(name)
	}
	if name := strings.TrimSuffix(filepath.Base(r.Name), fileSuffix) + ".yaml"; r.loader.Exists(r.Path(name)) {
		return r.Path(name)
	}
	return r.Path("team.yaml")
}

// replacing is a part of a test file that replaces models, agents and tools.
type replacing interface {
	GetModels() map[string]*teamv1.ModelScript
	GetAgents() map[string]*teamv1.ScriptedAgent
	GetTools() map[string]*teamv1.ToolScript
}

// standIns returns the stand-ins of a part of the file at path: those of common, overridden by its own.
func (r *reader) standIns(path []any, common *config.StandIns, of replacing) (*config.StandIns, error) {
	s := &config.StandIns{Models: map[string]config.Script{}, Agents: map[string]*yaml.Node{}, Tools: map[string]*teamv1.ToolScript{}, RealModels: r.real}
	if common != nil {
		maps.Copy(s.Models, common.Models)
		maps.Copy(s.Agents, common.Agents)
		maps.Copy(s.Tools, common.Tools)
	}
	maps.Copy(s.Tools, of.GetTools())
	for _, name := range sorted(of.GetTools()) {
		for i, call := range of.GetTools()[name].GetCalls() {
			at := slices.Concat(path, []any{"tools", name, "calls", i, "files"})
			for j, part := range r.parts(call.GetFiles(), at) {
				if part.GetContent() != nil && part.GetRaw() == nil {
					r.Fault("a file of the result of a tool is raw", "for example {raw: aGVsbG8=, mediaType: text/plain}; write text as text of the call", append(at, j)...)
				}
			}
		}
	}
	var err error
	for _, name := range sorted(of.GetModels()) {
		script, ok := r.script(of.GetModels()[name], slices.Concat(path, []any{"models", name}))
		if !ok {
			err = errFaults
		}
		s.Models[name] = script
	}
	for id := range of.GetAgents() {
		s.Agents[id] = r.Node(slices.Concat(path, []any{"agents", id})...)
	}
	return s, err
}

// parts returns parts of messages in the JSON form of A2A. Faults are recorded.
func (r *reader) parts(list []*structpb.Struct, path []any) (parts []*a2av1.Part) {
	for i, s := range list {
		part := &a2av1.Part{}
		data, err := s.MarshalJSON()
		if err != nil || protojson.Unmarshal(data, part) != nil || part.GetContent() == nil {
			r.Fault("this is not a part of A2A", "for example {text: Hello}, {data: {n: 1}} or {raw: aGVsbG8=, mediaType: text/plain}", append(path[:len(path):len(path)], i)...)
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

// script reads a script from a file, or from the test file itself.
func (r *reader) script(m *teamv1.ModelScript, at []any) (config.Script, bool) {
	if m.GetFile() == "" {
		n := r.Node(at...)
		data, err := yaml.Marshal(n)
		if err != nil {
			r.Fault("not a valid script: "+err.Error(), "correct it", at...)
			return config.Script{}, false
		}
		s, err := scripted.ParseNode(r.Name, r.Data(), n)
		return config.Script{Script: s, Source: data}, r.isValid(err, at, func(f scripted.Fault) { r.FaultAt(f.Line, f.Col, f.Message, f.Hint) })
	}
	file := append(slices.Clip(at), "file")
	data, err := r.ReadFile(m.GetFile())
	if err != nil {
		r.Fault(fmt.Sprintf("script %q: %s", m.GetFile(), source.Unreadable(m.GetFile(), err).Message), "the path is relative to this file", file...)
		return config.Script{}, false
	}
	if syntax := source.Syntax(r.Path(m.GetFile()), data); syntax != nil {
		r.faults = append(r.faults, syntax...)
		return config.Script{}, false
	}
	s, err := scripted.Parse(r.Path(m.GetFile()), data)
	text := source.NewText(data)
	return config.Script{Script: s, Source: data}, r.isValid(err, file, func(f scripted.Fault) {
		r.faults = append(r.faults, text.Fault(f.File, f.Line, f.Col, f.Message, f.Hint))
	})
}

// isValid reports whether err is nil, and otherwise reports the faults of the script.
func (r *reader) isValid(err error, at []any, report func(scripted.Fault)) bool {
	var faults scripted.Faults
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			report(f)
		}
	case err != nil:
		r.Fault("not a valid script: "+err.Error(), "correct it", at...)
	}
	return err == nil
}
