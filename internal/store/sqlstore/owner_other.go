//go:build !unix

package sqlstore

// giveToFolder does nothing, because there is no root user here.
func giveToFolder(string, string) error { return nil }
