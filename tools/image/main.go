// Command image builds the image of team-server with ko, without publishing it: on a base that is empty but for the
// folders /data and /tmp, which a user who is not root owns. It serves a registry on loopback for that, and writes a
// file for each platform that "docker load" reads. It prints what the images contain.
//
//	image -ko bin/ko -o bin/image -tag team-server:latest
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user owns /data, and runs the program. The number is that of "nonroot" in other images; the image has no names.
const user = 65532

var platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

func main() {
	ko := flag.String("ko", "bin/ko", "program of ko")
	out := flag.String("o", "bin/image", "the beginning of the names of the files, which -ARCHITECTURE.tar follows")
	tag := flag.String("tag", "team-server:latest", "name of the image, once it is loaded")
	module := flag.String("module", ".", "folder of the module of the program")
	of := flag.String("package", "./cmd/team-server", "package of the program in its module")
	flag.Parse()
	if err := build(context.Background(), *ko, *out, *tag, *module, *of); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build builds the images of a package of a module, and writes them into files whose names begin with out.
func build(ctx context.Context, ko, out, tag, module, of string) (err error) {
	if ko, err = filepath.Abs(ko); err != nil {
		return err
	}
	loaded, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	address, stop, err := serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pushBase(ctx, address+"/base:latest"); err != nil {
		return fmt.Errorf("the base image: %w", err)
	}
	var want []string
	for _, p := range platforms {
		want = append(want, p.String())
	}
	c := exec.CommandContext(ctx, ko, "build", "--bare", "--sbom=none", "--tags=latest", "--platform="+strings.Join(want, ","), of) //nolint:gosec // the path is a flag
	c.Dir = module
	c.Env = append(os.Environ(), "KO_DOCKER_REPO="+address+"/team-server", "KO_DEFAULTBASEIMAGE="+address+"/base:latest", "SOURCE_DATE_EPOCH="+os.Getenv("SOURCE_DATE_EPOCH"))
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("ko: %w", err)
	}
	for _, p := range platforms {
		if err := save(ctx, address+"/team-server:latest", p, loaded, out+"-"+p.Architecture+".tar"); err != nil {
			return fmt.Errorf("%s: %w", p.String(), err)
		}
	}
	return nil
}

// serve serves a registry on loopback. stop ends it.
func serve(ctx context.Context) (address string, stop func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() error {
		err := s.Close()
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// pushBase pushes the base image for all platforms.
func pushBase(ctx context.Context, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	folders, err := layer()
	if err != nil {
		return err
	}
	var index v1.ImageIndex = empty.Index
	for _, p := range platforms {
		image, err := mutate.AppendLayers(empty.Image, folders)
		if err != nil {
			return err
		}
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{
			OS: p.OS, Architecture: p.Architecture, Config: v1.Config{User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/data", Volumes: map[string]struct{}{"/data": {}}},
			RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(image)},
		})
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p}})
	}
	return remote.WriteIndex(ref, index, remote.WithContext(ctx))
}

func diffIDs(image v1.Image) []v1.Hash {
	c, err := image.ConfigFile()
	if err != nil {
		return nil // ConfigFile of an image in memory does not fail
	}
	return c.RootFS.DiffIDs
}

// layer returns the folders of the base image.
func layer() (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, folder := range []tar.Header{{Name: "data/", Mode: 0o700, Uid: user, Gid: user}, {Name: "tmp/", Mode: 0o1777}} {
		folder.Typeflag, folder.ModTime = tar.TypeDir, time.Unix(0, 0)
		if err := w.WriteHeader(&folder); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}

// save writes the image of a platform into a file, and prints what it contains.
func save(ctx context.Context, from string, p v1.Platform, tag name.Tag, file string) error {
	ref, err := name.ParseReference(from)
	if err != nil {
		return err
	}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(p))
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	c, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if c.Config.User == "" || strings.HasPrefix(c.Config.User, "0") {
		return fmt.Errorf("the image runs as %q, which is root", c.Config.User)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return err
	}
	fmt.Printf("%s  %s  %s\n  user %s, folder %s, entrypoint %v\n", file, p.String(), digest, c.Config.User, c.Config.WorkingDir, c.Config.Entrypoint)
	return list(image)
}

// list prints the files of an image.
func list(image v1.Image) error {
	files := mutate.Extract(image)
	defer files.Close() //nolint:errcheck // it only reads
	r := tar.NewReader(files)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Printf("  %s %5d:%-5d %9d %s\n", h.FileInfo().Mode(), h.Uid, h.Gid, h.Size, h.Name)
	}
}
