package config

import (
	"errors"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// scripts reads the scripts of scripted models. Faults of scripts are reported with those of the
// configuration file.
func (k *checker) scripts() {
	for _, name := range sorted(k.Server.GetModels()) {
		if m := k.Server.GetModels()[name]; m.GetProvider() == "scripted" && m.GetFile() != "" {
			k.script(name, m.GetFile())
		}
	}
}

func (k *checker) script(model, file string) {
	if _, ok := k.played[model]; ok {
		return
	}
	n, _ := k.at("models", model, "file")
	data, err := k.ReadFile(file)
	if err != nil {
		f := unreadable(file, err)
		k.fault(n, "script "+quote(file)+": "+f[0].Message, "the path is relative to this file")
		return
	}
	s, err := scripted.Parse(k.Path(file), data)
	var faults scripted.Faults
	switch {
	case errors.As(err, &faults):
		text := NewText(data)
		for _, f := range faults {
			k.faults = append(k.faults, text.Fault(f.File, f.Line, f.Col, f.Message, f.Hint))
		}
	case err != nil:
		k.fault(n, "script "+quote(file)+": "+err.Error(), "correct the script")
	default:
		k.Scripts[model], k.Config.scripts[model] = s, data
	}
}
