//go:build unix

package chaos_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/internal/cli"
)

// role makes a process of the test binary the program itself.
const role = "CHAOS_PROGRAM"

var (
	full = flag.Bool("chaos.full", false, "5,000 requests instead of some hundreds")
	seed = flag.Uint64("chaos.seed", 1, "chooses requests and faults")
)

func TestMain(m *testing.M) {
	brokertest.Main()
	if pace := os.Getenv(pacedRole); pace != "" {
		brokertest.ExitWithTest()
		os.Exit(pacedWorker(context.Background(), pace, os.Stderr))
	}
	if os.Getenv(role) != "" {
		brokertest.ExitWithTest()
		os.Exit(cli.Main(context.Background(), os.Args[1:], nil, os.Stdout, os.Stderr))
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}
