// Command load sends messages to an A2A server on this machine over JSON-RPC, checks that each is
// answered with a completed task that has the text of the message as its artifact, and prints the
// throughput and the latency. It ends at the first wrong answer.
//
//	load -url http://127.0.0.1:8080/echo/rpc -callers 64 -time 10s
//
// The benchmark of this package runs it against whole servers, side by side; see ../README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	var l load
	flag.StringVar(&l.url, "url", "http://127.0.0.1:8080/", "URL for JSON-RPC, on loopback, of an agent that echoes")
	flag.IntVar(&l.callers, "callers", 64, "how many callers send at the same time, 1 to 1024")
	flag.DurationVar(&l.time, "time", 10*time.Second, "how long callers begin new calls, at most 10m")
	flag.IntVar(&l.calls, "calls", 0, "the most calls of all callers together; 0 means no limit")
	flag.BoolVar(&l.old, "a2a-0.3", false, "send messages as in A2A 0.3")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	r, err := l.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	fmt.Printf("%d tasks in %v, %.0f a second, median %v, 99th percentile %v\n", r.calls, r.took.Round(time.Millisecond), r.rate(), r.p50, r.p99)
}
