package auth

import (
	"fmt"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// emptySum is the SHA-256 of no text: the hash of a key that was not set when it was computed.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Check reports what would let in callers whom the configuration does not mean: times that do not exist, and keys and names
// that belong to two callers. fault receives the path of a value, what is wrong with it, and what to write instead.
func Check(c *teamv1.AuthConfig, fault func(field, what, instead string)) {
	sums, names := map[string]int{}, map[string]int{}
	for i, key := range c.GetApiKeys() {
		at := fmt.Sprintf("api_keys[%d].", i)
		if _, err := time.Parse(time.RFC3339, key.GetExpires()); err != nil && key.GetExpires() != "" {
			fault(at+"expires", fmt.Sprintf("expires %q is a time that does not exist", key.GetExpires()), "check the day of the month")
		}
		sum := strings.ToLower(key.GetSha256())
		first, known := sums[sum]
		switch {
		case sum == "":
		case sum == emptySum:
			fault(at+"sha256", "sha256 is that of an empty key", "the key was not set when its hash was computed; compute it again")
		case known:
			fault(at+"sha256", fmt.Sprintf("sha256 is that of api_keys[%d] too, so the key would belong to two callers", first), "give each caller a key of its own")
		default:
			sums[sum] = i
		}
	}
	for i, client := range c.GetMtls() {
		san := client.GetSan()
		if first, known := names[san]; known {
			fault(fmt.Sprintf("mtls[%d].san", i), fmt.Sprintf("san %q is that of mtls[%d] too", san, first), "a certificate belongs to one caller; remove one of them")
		} else if san != "" {
			names[san] = i
		}
	}
}
