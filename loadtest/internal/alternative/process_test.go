package alternative_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/alternative"
)

// TestMain makes the test program a server when a test starts it as one.
func TestMain(m *testing.M) {
	switch os.Getenv("ALTERNATIVE_FAKE") {
	case "serves":
		_, _ = os.Stdout.WriteString("listening 127.0.0.1:1\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "fails":
		_, _ = os.Stdout.WriteString("no model\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestStart(t *testing.T) {
	t.Parallel()
	s, err := alternative.Start(t.Context(), []string{os.Args[0]}, []string{"ALTERNATIVE_FAKE=serves"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Addresses) != 2 || s.Addresses[1] != "127.0.0.1:1" || len(s.IDs) != 2 || s.IDs[0] == s.IDs[1] {
		t.Errorf("addresses %v of processes %v", s.Addresses, s.IDs)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	_, err := alternative.Start(t.Context(), []string{os.Args[0]}, []string{"ALTERNATIVE_FAKE=fails"}, 1)
	if err == nil || !strings.Contains(err.Error(), `"no model"`) {
		t.Errorf("error %v, want one with what it said", err)
	}
	if _, err := alternative.Start(t.Context(), []string{"/no/such/program"}, nil, 1); err == nil {
		t.Error("a program that is not there was started")
	}
}
