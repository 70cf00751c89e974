package fakellm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// File is a file in a request or in an answer.
type File struct {
	// Type is the media type, and Name the name; "" if there is none.
	Type, Name string
	// Data are the bytes. URL is the address of a file that is not in the request.
	Data []byte
	URL  string
}

// Files returns the files of all messages, in order.
func (r *Request) Files() []File {
	var all []File
	for _, m := range r.Messages {
		all = append(all, m.Files...)
	}
	return all
}

// contentFiles returns the files of a message of OpenAI's API, or why the API rejects it.
func contentFiles(raw json.RawMessage) ([]File, error) {
	var parts []struct {
		Type  string
		Image struct{ URL string } `json:"image_url"`
		File  struct {
			Name string `json:"filename"`
			Data string `json:"file_data"`
		}
		Audio struct{ Data, Format string } `json:"input_audio"`
	}
	_ = json.Unmarshal(raw, &parts) // a text has no files
	var files []File
	for i, p := range parts {
		var f File
		var err error
		switch p.Type {
		case "text":
			continue
		case "image_url":
			if f, err = fromURL(p.Image.URL); err == nil && f.URL == "" && !strings.HasPrefix(f.Type, "image/") {
				err = fmt.Errorf("image_url: %s is not an image", f.Type)
			}
		case "file":
			if f, err = fromURL(p.File.Data); err == nil && (f.Type != "application/pdf" || p.File.Name == "") {
				err = fmt.Errorf("file: expected a PDF with a filename")
			}
			f.Name = p.File.Name
		case "input_audio":
			if f.Type = "audio/" + p.Audio.Format; p.Audio.Format != "wav" && p.Audio.Format != "mp3" {
				err = fmt.Errorf("input_audio.format: expected wav or mp3")
			}
			if err == nil {
				f.Data, err = base64.StdEncoding.DecodeString(p.Audio.Data)
			}
		default:
			err = fmt.Errorf("type %q is unknown", p.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("[%d].%w", i, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// fromURL returns the file of a URL, which may hold it.
func fromURL(url string) (File, error) {
	data, inline := strings.CutPrefix(url, "data:")
	if !inline {
		if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return File{}, fmt.Errorf("url: expected a data URL or an http address, got %.40q", url)
		}
		return File{URL: url}, nil
	}
	media, data, found := strings.Cut(data, ";base64,")
	raw, err := base64.StdEncoding.DecodeString(data)
	if !found || err != nil || media == "" {
		return File{}, fmt.Errorf("url: not a valid data URL")
	}
	return File{Type: media, Data: raw}, nil
}

// source is the source of an image or document of Anthropic's API.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
	URL       string `json:"url"`
}

// blockFiles returns the files among blocks, or why Anthropic's API rejects one.
func blockFiles(at string, blocks []block) ([]File, error) {
	var files []File
	for _, b := range blocks {
		if b.Type != "image" && b.Type != "document" {
			continue
		}
		s := b.Source
		types := []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
		if b.Type == "document" {
			types = []string{"application/pdf"}
		}
		switch {
		case s == nil:
			return nil, fmt.Errorf("%s.%s.source: Field required", at, b.Type)
		case s.Type == "url" && strings.HasPrefix(s.URL, "http"):
			files = append(files, File{URL: s.URL, Name: b.Title})
		case s.Type != "base64" || len(s.Data) == 0:
			return nil, fmt.Errorf("%s.%s.source: Input tag %q is unknown, or data is missing", at, b.Type, s.Type)
		case !slices.Contains(types, s.MediaType):
			return nil, fmt.Errorf("%s.%s.source.base64.media_type: Input should be one of %v", at, b.Type, types)
		default:
			files = append(files, File{Type: s.MediaType, Data: s.Data, Name: b.Title})
		}
	}
	return files, nil
}
