package main

import "strings"

// part is a part of the report: benchmarks that are run together.
type part struct {
	name  string
	title string
	runs  []run
}

// run is one call of go test.
type run struct {
	dir   string // of the module, from the root
	pkg   string
	bench string
	env   []string
}

// parts returns all parts, those first whose results are compared most.
func parts() []part {
	return []part{
		{"servers", "Whole servers side by side", []run{{".", "./bench/load", "Servers", nil}}},
		{"calls", "Calls", []run{{".", "./bench", "^Benchmark(Process|Send|Front|Gateway)$", nil}}},
		{"growth", "Growth of a run", []run{{".", "./bench", "^Benchmark(Steps|Place|Coordinator|Parallel|Depth|History)$", nil}}},
		{"peers", "Other frameworks in one process", []run{{"bench/peers", "./...", ".", nil}}},
		{"durable", "Durable steps", []run{{".", "./bench", "^Benchmark(Durable|Notify)$", nil}}},
		{"watch", "Readers of a task", []run{{".", "./bench", "^BenchmarkWatch$", nil}}},
		{"waiting", "Runs that wait, and tasks that have ended", []run{
			{".", "./bench", "^BenchmarkWaiting$", []string{"BENCH_WAITING=100"}},
			{".", "./bench", "^BenchmarkWaiting$", []string{"BENCH_WAITING=1000"}},
			{".", "./bench", "^Benchmark(Waiting|Ended)$", []string{"BENCH_WAITING=10000"}},
		}},
		{"connections", "Open connections", []run{{".", "./bench/load", "Connections", nil}}},
		{"list", "Lists of tasks", []run{{".", "./bench", "^BenchmarkList$", []string{"BENCH_LIST=1000,10000,100000,1000000"}}}},
	}
}

// named returns the parts with the names, in the order of all parts, and the names that are unknown.
func named(all []part, names []string) (some []part, unknown []string) {
	left := map[string]bool{}
	for _, n := range names {
		left[n] = true
	}
	for _, p := range all {
		if left[p.name] {
			some = append(some, p)
			delete(left, p.name)
		}
	}
	for n := range left {
		unknown = append(unknown, n)
	}
	return some, unknown
}

func namesOf(all []part) string {
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
