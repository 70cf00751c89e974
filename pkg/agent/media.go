package agent

import (
	"fmt"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TextFiles are the media types of files whose content is text. Every model takes them: they become
// part of the text of its prompt.
var TextFiles = []string{"text/*", "application/json", "application/xml", "application/yaml"}

// FileTaker is an optional interface of a Model that takes files. A Model without it takes files
// with a media type of TextFiles only.
type FileTaker interface {
	// Files returns which files the model takes. It always returns the same value.
	Files() Files
}

// Files says which files a model takes, and how many tokens they can cost.
type Files struct {
	// Types are the media types of the files that the model takes as bytes, such as image/*.
	Types []string
	// URLs are the media types of the files that the model takes by their URL.
	URLs []string
	// ImageTokens is the maximum number of tokens that the provider counts for an image.
	ImageTokens int64
	// Window is the maximum number of input tokens that the provider accepts in one request. It
	// bounds the files whose tokens nothing else bounds: documents, audio, videos, and all files
	// except images that are passed by URL.
	Window int64
}

// FilesOf returns which files a model takes.
func FilesOf(m Model) Files {
	if t, ok := m.(FileTaker); ok {
		return t.Files()
	}
	return Files{Types: TextFiles}
}

// Takes reports whether the model takes a file.
func (f *Files) Takes(p *a2av1.Part) bool {
	if url := p.GetUrl(); url != "" {
		return isWebURL(url) && MatchesMedia(MediaType(p), f.URLs)
	}
	return MatchesMedia(MediaType(p), f.Types)
}

// Tokens returns the maximum number of tokens that the provider counts for a file that the model
// takes. If windowBound is true, n is Window: the file and the rest of the prompt together have at
// most that many tokens. The size of an image in bytes says nothing about its tokens, but providers
// bound them. Nothing bounds the length of audio, a video or a document by its size in bytes.
func (f *Files) Tokens(p *a2av1.Part) (n int64, windowBound bool) {
	if kind, _, _ := strings.Cut(MediaType(p), "/"); kind == "image" {
		return f.ImageTokens, false
	}
	return f.Window, true
}

// isWebURL reports whether a URL has the scheme https or http. Others, which a provider may read with
// the key or the rights of the operator, are not passed on.
func isWebURL(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http")
}

// IsFile reports whether a part is a file with content: bytes or a URL. Conversations store files
// without their content.
func IsFile(p *a2av1.Part) bool { return len(p.GetRaw()) > 0 || p.GetUrl() != "" }

// MediaType returns the media type of a part in lower case and without parameters. If the part
// has none, it returns the default for its kind of content.
func MediaType(p *a2av1.Part) string {
	if media, _, _ := strings.Cut(p.GetMediaType(), ";"); strings.TrimSpace(media) != "" {
		return strings.ToLower(strings.TrimSpace(media))
	}
	switch p.GetContent().(type) {
	case *a2av1.Part_Text:
		return "text/plain"
	case *a2av1.Part_Data:
		return "application/json"
	}
	return "application/octet-stream"
}

// MatchesMedia reports whether a media type matches an entry of list. Entries may end in "/*", and
// "*/*" matches all. media may be such an entry too; it matches if all types that it stands for do.
func MatchesMedia(media string, list []string) bool {
	media, _, _ = strings.Cut(strings.ToLower(media), ";")
	media = strings.TrimSpace(media)
	return slices.ContainsFunc(list, func(one string) bool {
		one, _, _ = strings.Cut(strings.ToLower(one), ";")
		one = strings.TrimSpace(one)
		group, all := strings.CutSuffix(one, "/*")
		return one == media || all && (group == "*" || strings.HasPrefix(media, group+"/"))
	})
}

// CommonMedia returns the media types that match both lists, in the order of a. The result is not nil.
func CommonMedia(a, b []string) []string {
	both := []string{}
	add := func(media string) {
		if !slices.Contains(both, media) {
			both = append(both, media)
		}
	}
	for _, one := range a {
		if MatchesMedia(one, b) {
			add(one)
			continue
		}
		for _, other := range b {
			if MatchesMedia(other, []string{one}) {
				add(other)
			}
		}
	}
	return both
}

// AcceptsFile reports whether an agent accepts a file: its media type is one of the input modes and
// of the file modes, as far as the agent specifies them.
func AcceptsFile(info *teamv1.AgentInfo, p *a2av1.Part) bool {
	media := MediaType(p)
	if len(info.GetInputModes()) > 0 && !MatchesMedia(media, info.GetInputModes()) {
		return false
	}
	if len(info.GetFileModes()) == 0 {
		return true
	}
	f := Files{Types: info.GetFileModes(), URLs: info.GetUrlModes()}
	return f.Takes(p)
}

// Refused says why an agent does not accept a part: its media type, what the agent accepts instead,
// and for a URL that it has to be sent as bytes, if that helps.
func Refused(info *teamv1.AgentInfo, p *a2av1.Part) string {
	media, modes := MediaType(p), InputModes(info)
	if p.GetUrl() != "" && len(info.GetFileModes()) > 0 && !MatchesMedia(media, info.GetUrlModes()) {
		byURL := "no files by URL"
		if len(info.GetUrlModes()) > 0 {
			byURL = "by URL only " + strings.Join(info.GetUrlModes(), ", ")
		}
		if MatchesMedia(media, modes) {
			return fmt.Sprintf("is the URL of a file of type %s; agent %q accepts %s; send its bytes", Quote(media), info.GetId(), byURL)
		}
		return fmt.Sprintf("is the URL of a file of type %s; agent %q accepts %s, and as bytes %s", Quote(media), info.GetId(), byURL, strings.Join(modes, ", "))
	}
	return fmt.Sprintf("is %s; agent %q accepts %s", Quote(media), info.GetId(), strings.Join(modes, ", "))
}

// CheckFiles returns CONTENT_TYPE_NOT_SUPPORTED if an agent does not accept a file in a message.
func CheckFiles(info *teamv1.AgentInfo, m *a2av1.Message) error {
	for i, p := range m.GetParts() {
		if IsFile(p) && !AcceptsFile(info, p) {
			return Errorf(CodeInvalidArgument, ReasonContentType, "part %d of the message for %q %s", i, info.GetId(), Refused(info, p))
		}
	}
	return nil
}

// InputModes returns the media types of all parts that an agent accepts; nil means that they are not
// restricted.
func InputModes(info *teamv1.AgentInfo) []string {
	own, files := info.GetInputModes(), info.GetFileModes()
	switch {
	case len(files) == 0:
		return own
	case len(own) == 0:
		return appendNew([]string{"text/plain", "application/json"}, files...)
	}
	return CommonMedia(own, appendNew([]string{"text/plain", "application/json"}, files...))
}

// SetFiles stores in the description of an agent which files it takes. It stores nothing if the agent
// takes all.
func SetFiles(info *teamv1.AgentInfo, f Files) {
	info.FileModes, info.UrlModes = nil, nil
	if MatchesMedia("*/*", f.Types) && MatchesMedia("*/*", f.URLs) {
		return
	}
	info.FileModes, info.UrlModes = f.Types, f.URLs
	if len(f.Types) == 0 {
		info.FileModes = []string{"text/plain"} // an empty list would be unspecified
	}
}

// FilesAccepted returns the media types of the files that an agent accepts.
func FilesAccepted(info *teamv1.AgentInfo) Files {
	f := Files{Types: InputModes(info)}
	if f.Types == nil {
		f.Types = []string{"*/*"}
	}
	switch {
	case len(info.GetFileModes()) == 0:
		f.URLs = f.Types
	case len(info.GetInputModes()) == 0:
		f.URLs = info.GetUrlModes()
	default:
		f.URLs = CommonMedia(info.GetInputModes(), info.GetUrlModes())
	}
	return f
}

// appendNew appends the elements that a list does not have.
func appendNew(list []string, more ...string) []string {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}
