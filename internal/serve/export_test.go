package serve

// AtStart returns the keys of server: that a reload does not apply.
func AtStart() []string { return atStart }
