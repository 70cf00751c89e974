package store

// Everybody is the audience of a change that may concern every owner.
const Everybody = ""

// EveryoneOf returns the audience of a change that may concern every owner of an
// account.
func EveryoneOf(account string) string { return account + "/" }

// Poke sends a signal to a channel with a buffer of one, unless one is pending. It never blocks.
func Poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
