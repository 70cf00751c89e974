// Command protodeps copies the .proto files that those of this project import into
// third_party. It takes them from published Go modules at pinned versions, and
// fails if a file does not have the expected checksum.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
)

// source is one published module and the files taken from it.
type source struct {
	module string // path@version
	root   string // folder in the module that imports are relative to
	files  []file
}

type file struct {
	name string // import path, below root
	sum  string // hex SHA-256
}

func sources() []source {
	return []source{
		{
			module: "github.com/google/gnostic@v0.7.0",
			root:   "cmd/protoc-gen-openapi/examples",
			files: []file{
				{"google/api/annotations.proto", "bff7c47b78bd25d34e70efc06f49764ec24f55e665067b9be49e53e825250ce8"},
				{"google/api/client.proto", "cb06092e085777c73b87a204ce22df9f8cb44bbd8438eb266515aac924d3dfec"},
				{"google/api/field_behavior.proto", "0a85b8f30843abd7c7355dd2a8fc9a542a50d52c50d98b142540ca433a2ed2c1"},
				{"google/api/http.proto", "e2706b549f04b1814be792f74fe5eb4f8141f96c95c191f4f1697679d55eb259"},
			},
		},
		{
			module: "github.com/bufbuild/protovalidate@v1.2.2",
			root:   "proto/protovalidate",
			files:  []file{{"buf/validate/validate.proto", "a1dc1163ebac930b3b070655b91f2bc78df8b4aea940021661fe5ec7904a7b88"}},
		},
		{
			module: "github.com/grpc-ecosystem/grpc-gateway/v2@v2.31.0",
			root:   ".",
			files: []file{
				{"protoc-gen-openapiv2/options/annotations.proto", "1f8e23ce506c358349d5ce0e54c336e3b2f3bf17c5d9e7d965e24a6e3429c2c9"},
				{"protoc-gen-openapiv2/options/openapiv2.proto", "8e9c28731f17e4608a1f7457cdd6f9a2718add4f5f9a0390dd5514a88e2023ef"},
			},
		},
	}
}

func main() {
	out := flag.String("o", "third_party", "folder to write to; emptied first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out, sources())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "protodeps:", err)
		os.Exit(1)
	}
}

// run replaces out with the files of srcs. If a file is missing or its checksum is
// wrong, nothing is written, and the error names all such files.
func run(ctx context.Context, out string, srcs []source) error {
	content := map[string][]byte{}
	var faults []error
	for _, s := range srcs {
		dir, err := download(ctx, s.module)
		if err != nil {
			return err
		}
		for _, f := range s.files {
			b, err := read(filepath.Join(dir, filepath.FromSlash(path.Join(s.root, f.name))), f.sum)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s of %s: %w", f.name, s.module, err))
				continue
			}
			content[f.name] = b
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return write(out, content)
}

// download fetches a module into the module cache and returns its folder there.
func download(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var info struct{ Dir, Error string }
	if err := json.Unmarshal(stdout.Bytes(), &info); err != nil {
		return "", fmt.Errorf("download %s: %w: %s", module, errors.Join(runErr, err), stderr.String())
	}
	if info.Error != "" {
		return "", fmt.Errorf("download %s: %s", module, info.Error)
	}
	if runErr != nil {
		return "", fmt.Errorf("download %s: %w", module, runErr)
	}
	return info.Dir, nil
}

func read(name, want string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != want {
		return nil, fmt.Errorf("sha256 is %s, want %s", got, want)
	}
	return b, nil
}

func write(out string, content map[string][]byte) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, b := range content {
		to := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
