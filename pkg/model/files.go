package model

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Formats are the files that the APIs of the providers take, by the name of the provider in a
// configuration. ImageTokens is the largest number that any of its models counts for an image:
// gpt-4o-mini counts 2833, and 5667 for each of at most 8 tiles; Claude at most 4784; Gemini at most
// 258 for each tile of 768 pixels, of which 100 are allowed for here. Endpoints other than OpenAI's
// run models of which the largest counts 16384.
var Formats = map[string]agent.Files{
	"openai": {
		Types: with("image/*", "application/pdf", "audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"),
		URLs:  []string{"image/*"}, ImageTokens: 50_000, Window: 1_050_000,
	},
	"anthropic": {
		Types: with("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"),
		URLs:  []string{"image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"}, ImageTokens: 5_000, Window: 1_000_000,
	},
	"gemini": {
		Types: with("image/*", "application/pdf", "audio/*", "video/*"),
		URLs:  []string{"image/*", "application/pdf", "audio/*", "video/*"}, ImageTokens: 25_800, Window: 1_050_000,
	},
}

func with(types ...string) []string { return slices.Concat(agent.TextFiles, types) }

// Files returns which files a model of a provider takes: those of Accepts or, if it is not set,
// those of byDefault, as far as the API of the provider takes them.
func (c *Config) Files(provider string, byDefault ...string) agent.Files {
	f, accepts := Formats[provider], c.Accepts
	if len(accepts) == 0 {
		accepts = byDefault
	}
	f.Types, f.URLs = agent.CommonMedia(accepts, f.Types), agent.CommonMedia(accepts, f.URLs)
	f.Window = cmp.Or(c.ContextWindow, f.Window)
	return f
}

// DataURL returns the bytes of a file as a data URL, and the URL of a file that is passed by URL.
func DataURL(p *a2av1.Part) string {
	if url := p.GetUrl(); url != "" {
		return url
	}
	return "data:" + agent.MediaType(p) + ";base64," + base64.StdEncoding.EncodeToString(p.GetRaw())
}

// File returns the n-th file that a model has made in a turn, as a part.
func File(media string, data []byte, n int) *a2av1.Part {
	name := "file-" + strconv.Itoa(n)
	if kind, sub, ok := strings.Cut(media, "/"); ok && kind != "application" {
		name = kind + "-" + strconv.Itoa(n) + "." + strings.TrimPrefix(sub, "x-")
	}
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: data}, MediaType: media, Filename: name}
}

// FromDataURL returns the media type and the bytes of a data URL. ok is false for other URLs and for
// data that is not in base64.
func FromDataURL(url string) (media string, data []byte, ok bool) {
	head, body, found := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !found || !strings.HasPrefix(url, "data:") {
		return "", nil, false
	}
	data, err := base64.StdEncoding.DecodeString(body)
	return head, data, err == nil
}
