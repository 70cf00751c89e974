package store

// AllOwners is the audience of a change that may concern the tasks of every owner.
const AllOwners = ""

// OwnersOf returns the audience of a change that may concern every owner of an account.
func OwnersOf(account string) string { return account + "/" }

// Poke sends a signal to a channel with a buffer of one, unless one is pending. It never blocks.
func Poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
