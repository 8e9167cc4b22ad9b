package brokertest_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/broker/brokertest"
)

// role makes a process of these tests something else.
const role = "BROKERTEST_ROLE"

func TestMain(m *testing.M) {
	brokertest.Main()
	if os.Getenv(role) != "" {
		brokertest.ExitWithTest()
		_, _ = os.Stdout.WriteString("I am here\n") // the test misses it
		select {}                                   // until a signal
	}
	goleak.VerifyTestMain(m)
}
