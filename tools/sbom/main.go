// Command sbom writes the bill of materials of a Go program, in CycloneDX JSON, from the build information that the
// program contains: each module that is linked into it, with its version and hash, and how it was built. Two runs for
// the same program write the same bytes.
//
//	sbom -o FILE PROGRAM
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom -o FILE PROGRAM")
		os.Exit(2)
	}
	if err := write(*out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of a program into a file.
func write(file, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	bom, err := materials(info)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	f, err := os.Create(file) //nolint:gosec // the path is a flag
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return f.Close()
}

// materials returns the bill of materials of a program with this build information.
func materials(info *buildinfo.BuildInfo) (*cdx.BOM, error) {
	program := component(info.Main.Path, info.Main.Version, cdx.ComponentTypeApplication)
	var properties []cdx.Property
	for _, s := range info.Settings {
		properties = append(properties, cdx.Property{Name: "build:" + s.Key, Value: s.Value})
	}
	program.Properties = &properties

	std := component("stdlib", strings.TrimPrefix(info.GoVersion, "go"), cdx.ComponentTypeLibrary)
	components, uses := []cdx.Component{std}, []string{std.BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(m.Path, m.Version, cdx.ComponentTypeLibrary)
		if m.Sum == "" {
			return nil, fmt.Errorf("the module %s has no hash; it was built from a folder, not from a released version", m.Path)
		}
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil {
			return nil, fmt.Errorf("hash of %s: %w", m.Path, err)
		}
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		components, uses = append(components, c), append(uses, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &uses}}
	return bom, nil
}

// component returns a module with its package URL, which is also its reference.
func component(module, version string, kind cdx.ComponentType) cdx.Component {
	url := "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{Type: kind, BOMRef: url, Name: module, Version: version, PackageURL: url}
}
