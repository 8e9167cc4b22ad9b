package cli_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/internal/cli"
)

// patience bounds every wait of a test.
const patience = 60 * time.Second

// asProgram makes the test binary the program itself: tests that need real
// processes start it with this variable set.
const asProgram = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// run runs a command within the test.
func run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	code := cli.Main(ctx, args, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

func (r result) want(t *testing.T, code int, out, errs string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, errs) {
		t.Errorf("exit code %d, stdout:\n%s\nstderr:\n%s\nwant %d, %q and %q", r.code, r.out, r.err, code, out, errs)
	}
}
