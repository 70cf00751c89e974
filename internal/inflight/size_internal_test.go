package inflight

import (
	"os"
	"testing"
)

func TestLimitOfTheProcess(t *testing.T) {
	const meminfo = "MemTotal:        2097152 kB\nMemFree: 1 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"the machine", map[string]string{"/proc/meminfo": meminfo}, 2 << 30},
		{"cgroup v2 in a container", map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		{"cgroup v2 of a unit", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/system.slice/team.service\n",
			"/sys/fs/cgroup/system.slice/team.service/memory.max": "max\n", "/sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
		}, 1 << 30},
		{"cgroup v1", map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "5:cpu:/x\n3:memory:/docker/1\n", "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "268435456\n",
		}, 256 << 20},
		{"cgroup v1 without a limit", map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2 << 30},
		{"nothing known", nil, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := limitOf(func(file string) ([]byte, error) {
				if text, ok := c.files[file]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			}); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
	if DefaultSize() < least {
		t.Error(DefaultSize())
	}
}
