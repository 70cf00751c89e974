//go:build linux

package soak

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// sample is what a server holds.
type sample struct {
	heap, rss, goroutines, files float64
	database                     float64
}

// least returns the smaller value of each.
func (s sample) least(o sample) sample {
	return sample{min(s.heap, o.heap), min(s.rss, o.rss), min(s.goroutines, o.goroutines), min(s.files, o.files), o.database}
}

// meter reads the metrics of a server.
type meter struct {
	url  string
	size func() float64
}

// read returns a sample without the size of the database.
func (m meter) read(t testing.TB) (s sample, err error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.url, http.NoBody)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	found := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		to, ok := map[string]*float64{
			"go_memstats_heap_alloc_bytes": &s.heap, "process_resident_memory_bytes": &s.rss, "go_goroutines": &s.goroutines, "process_open_fds": &s.files,
		}[name]
		if !ok {
			continue
		}
		if _, err := fmt.Sscan(text, to); err != nil {
			return s, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		found++
	}
	if found != 4 {
		return s, fmt.Errorf("%d of 4 metrics were found", found)
	}
	return s, nil
}

// settled waits until the server holds no more goroutines and files than limit.
func (m meter) settled(t testing.TB, limit sample) sample {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		s, err := m.read(t)
		if err != nil {
			t.Fatal(err)
		}
		if s.goroutines <= limit.goroutines && s.files <= limit.files {
			s.database = m.size()
			return s
		}
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("%v after the load the server has %.0f goroutines and %.0f files, want at most %.0f and %.0f", patience, s.goroutines, s.files, limit.goroutines, limit.files)
			return s
		}
	}
}

// windowCount is how many windows a soak is divided into.
const windowCount = 20

// watch returns, for each window, the least of each value: what a leak raises and what calls under
// way do not.
func (m meter) watch(t testing.TB, length time.Duration, done <-chan struct{}) []sample {
	tick := time.NewTicker(min(length/windowCount/10, time.Second))
	defer tick.Stop()
	var windows []sample
	begin := time.Now()
	for {
		select {
		case <-tick.C:
		case <-done:
			return windows
		}
		s, err := m.read(t)
		if err != nil {
			t.Error(err)
			return windows
		}
		at := int(time.Since(begin) * windowCount / length)
		switch {
		case at >= windowCount:
		case at >= len(windows):
			s.database = m.size()
			windows = append(windows, s)
		default:
			last := &windows[len(windows)-1]
			s.database = last.database
			*last = last.least(s)
		}
	}
}

// bound is how much a value may grow during the second half of a soak.
type bound struct {
	name  string
	of    func(sample) float64
	share float64 // of the mean of the value
	plus  float64
}

// allows returns the growth that is allowed for a mean.
func (b bound) allows(mean float64) float64 { return b.share*mean + b.plus }

// boundsFor returns the bounds of a soak: narrow for long ones, which have come to a steady state.
func boundsFor(length time.Duration) []bound {
	share, megabytes, few := 0.08, 4e6, 8.0
	if length < 5*time.Minute {
		share, megabytes, few = 0.5, 32e6, 60
	}
	all := []bound{
		{"heap", func(s sample) float64 { return s.heap }, share, megabytes},
		{"resident memory", func(s sample) float64 { return s.rss }, share, megabytes},
		{"goroutines", func(s sample) float64 { return s.goroutines }, share, few},
		{"files", func(s sample) float64 { return s.files }, share, few},
	}
	if length >= 5*time.Minute { // tasks are deleted once a minute
		all = append(all, bound{"database", func(s sample) float64 { return s.database }, 0.15, megabytes})
	}
	return all
}

// growth returns the mean of a value in the second half of the windows, and by how much it grows
// during that half, along the line of the least squares.
func growth(windows []sample, of func(sample) float64) (mean, grown float64) {
	half := windows[len(windows)/2:]
	n := float64(len(half))
	var sx, sy, sxx, sxy float64
	for i, s := range half {
		x, y := float64(i), of(s)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return sy / n, (n*sxy - sx*sy) / (n*sxx - sx*sx) * (n - 1)
}

// faults returns a sentence for each value that grows beyond its bound.
func faults(windows []sample, bounds []bound) (all []string) {
	if len(windows) < windowCount/2 {
		return []string{fmt.Sprintf("only %d of %d windows were measured", len(windows), windowCount)}
	}
	for _, b := range bounds {
		mean, grown := growth(windows, b.of)
		if math.IsNaN(grown) || grown > b.allows(mean) {
			all = append(all, fmt.Sprintf("%s: grows by %.0f in the second half, mean %.0f, want at most %.0f", b.name, grown, mean, b.allows(mean)))
		}
	}
	return all
}

// report logs a table of the windows.
func report(t *testing.T, windows []sample, rest, end sample, counts string) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, s sample) {
		fmt.Fprintf(w, "%s\t%.1f MB\t%.1f MB\t%.0f\t%.0f\t%.1f MB\t\n", name, s.heap/1e6, s.rss/1e6, s.goroutines, s.files, s.database/1e6)
	}
	fmt.Fprint(w, "window\theap\tresident\tgoroutines\tfiles\tdatabase\t\n")
	row("before", rest)
	for i, s := range windows {
		row(fmt.Sprint(i+1), s)
	}
	row("after", end)
	_ = w.Flush() // into memory
	t.Logf("%s\n%s", counts, &b)
}

// TestGrowth tells a steady value from one that grows.
func TestGrowth(t *testing.T) {
	bounds := []bound{{"heap", func(s sample) float64 { return s.heap }, 0.1, 5}}
	for name, c := range map[string]struct {
		at   func(i int) float64
		want int
	}{
		"level":                      {func(i int) float64 { return 100 + float64(i%2) }, 0},
		"grows":                      {func(i int) float64 { return 100 + 3*float64(i) }, 1},
		"grows in the first half":    {func(i int) float64 { return 100 + 20*float64(min(i, 9)) }, 0},
		"shrinks":                    {func(i int) float64 { return 100 - 3*float64(i) }, 0},
		"has one peak in the middle": {func(i int) float64 { return 100 + 5*float64(10-max(i-15, 15-i)) }, 0},
	} {
		var windows []sample
		for i := range windowCount {
			windows = append(windows, sample{heap: c.at(i)})
		}
		if got := faults(windows, bounds); len(got) != c.want {
			t.Errorf("%s: %q, want %d faults", name, got, c.want)
		}
	}
	if got := faults(nil, bounds); len(got) != 1 {
		t.Errorf("without windows: %q", got)
	}
}
