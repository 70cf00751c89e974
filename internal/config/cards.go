package config

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cardsign"
)

// cards checks the keys that sign cards, the keys that are trusted to sign remote agents' cards,
// and extended cards.
func (k *checker) cards() {
	for i, key := range k.Server.GetServer().GetSigning().GetKeys() {
		k.keyFile(key.GetFile(), "file", func(data []byte) error {
			_, err := cardsign.ParsePrivate(data)
			return err
		}, "server", "signing", "keys", i, "file")
	}
	for _, id := range sorted(k.Server.GetAgents()) {
		a := k.Server.GetAgents()[id]
		k.extendedCards(a.GetExtendedCard(), "agents", id, "extended_card")
		for i, file := range a.GetA2A().GetTrustedKeys() {
			if !k.Used[id] {
				continue
			}
			k.keyFile(file, "trusted_keys", func(data []byte) error {
				k.trusted[file] = data
				_, err := cardsign.ParseTrusted(data)
				return err
			}, "agents", id, "a2a", "trusted_keys", i)
		}
	}
	for _, id := range sorted(k.Server.GetTeams()) {
		k.extendedCards(k.Server.GetTeams()[id].GetExtendedCard(), "teams", id, "extended_card")
	}
}

// keyFile reads a key file and reports a fault if it cannot be read or parsed.
func (k *checker) keyFile(file, key string, parse func([]byte) error, path ...any) {
	if file == "" || k.isDamaged(path...) {
		return
	}
	n, _ := k.at(path...)
	data, err := k.ReadFile(file)
	if err != nil {
		k.fault(n, key+" "+quote(file)+": "+unreadable(file, err)[0].Message, "the path is relative to this file")
		return
	}
	if err := parse(data); err != nil {
		k.fault(n, key+" "+quote(file)+" "+err.Error(), "docs/configuration.md says how to make one")
	}
}

// extendedCards reports skills with instructions, which a card does not publish.
func (k *checker) extendedCards(cards []*teamv1.ExtendedCard, path ...any) {
	for i, c := range cards {
		for j, s := range c.GetSkills() {
			if s.GetInstructions() != "" {
				at := append(path[:len(path):len(path)], i, "skills", j, "instructions")
				k.fault(k.keyAt(at...), "cards do not contain the instructions of skills", "remove them here")
			}
		}
	}
}

// Trust returns the verifier for the card of a remote agent, or nil if any card is accepted.
func (c *Config) Trust(a *teamv1.A2AAgent) (*cardsign.Trust, error) {
	var files [][]byte
	for _, name := range a.GetTrustedKeys() {
		data, err := c.ReadFile(name)
		if err != nil {
			return nil, unreadable(name, err)
		}
		files = append(files, data)
	}
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // nothing is verified
	}
	return cardsign.NewTrust(files...)
}
