package config

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// emptySum is the SHA-256 of no text: the hash of a key that was not set when it was computed.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// auth reports what lets in callers whom the file does not mean: empty values, which would stand for a
// default, times that do not exist, and keys and names that belong to two callers.
func (k *checker) auth() {
	at, found := k.at("server", "auth")
	if !found {
		return
	}
	k.emptyValues(at, "auth")
	sums := map[string]int{}
	for i, key := range k.Server.GetServer().GetAuth().GetApiKeys() {
		path := []any{"server", "auth", "api_keys", i}
		if n, ok := k.at(append(path, "expires")...); ok && key.GetExpires() != "" {
			if _, err := time.Parse(time.RFC3339, key.GetExpires()); err != nil {
				k.fault(n, "expires "+quote(key.GetExpires())+" is a time that does not exist", "check the day of the month")
			}
		}
		n, ok := k.at(append(path, "sha256")...)
		sum := strings.ToLower(key.GetSha256())
		first, known := sums[sum]
		switch {
		case !ok || sum == "":
		case sum == emptySum:
			k.fault(n, "sha256 is that of an empty key", "the key was not set when its hash was computed; compute it again")
		case known:
			k.fault(n, fmt.Sprintf("sha256 is that of api_keys[%d] too, so the key would belong to two callers", first), "give each caller a key of its own")
		default:
			sums[sum] = i
		}
	}
	k.certificateNames(k.Server.GetServer().GetAuth().GetMtls())
}

// certificateNames reports a name of certificates that two clients have.
func (k *checker) certificateNames(clients []*teamv1.CertificateClient) {
	names := map[string]int{}
	for i, c := range clients {
		first, known := names[c.GetSan()]
		if n, ok := k.at("server", "auth", "mtls", i, "san"); ok && known {
			k.fault(n, fmt.Sprintf("san %s is that of mtls[%d] too", quote(c.GetSan()), first), "a certificate belongs to one caller; remove one of them")
		}
		if !known {
			names[c.GetSan()] = i
		}
	}
}

// emptyValues reports keys without a value in a part of the file, in which an empty value would mean
// more than none.
func (k *checker) emptyValues(n *yaml.Node, name string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k.emptyValues(n.Content[i+1], n.Content[i].Value)
		}
		return
	case yaml.SequenceNode:
		for _, item := range n.Content {
			k.emptyValues(item, name)
		}
	}
	if len(n.Content) == 0 && n.Value == "" && n.Kind != yaml.AliasNode {
		k.fault(n, quote(name)+" is empty", "give it a value, or remove the key for the default")
	}
}
