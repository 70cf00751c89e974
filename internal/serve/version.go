package serve

import "runtime/debug"

// Version returns the version of the program's module. For a development build it returns "devel",
// with + and the commit that it was built from if that is known. It returns "unknown" if the program
// has no build information.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel+" + s.Value[:12]
		}
	}
	return "devel"
}
