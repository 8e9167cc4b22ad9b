package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// violation is an error as the connection reports it.
func violation(text string) error { return fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text) }

func TestDenials(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	tests := []struct {
		name, text string
		want       string // a subject in the error; empty: nothing is denied
		later      bool   // still after a while
	}{
		{"own api", `Permissions Violation for Publish to "$JS.API.INFO"`, `publish to "$JS.API.INFO"`, false},
		{"lower case", `permissions violation for publish to "$js.api.info"`, `publish to "$js.api.info"`, false},
		{"own stream", `Permissions Violation for Publish to "infer.final.c1.x"`, `publish to "infer.final.c1.x"`, false},
		{"subscription", `Permissions Violation for Subscription to "infer.rt.m"`, `subscribe to "infer.rt.m"`, true},
		{"queue", `Permissions Violation for Subscription to "infer.rt.m" using queue "cellmq"`, `subscribe to "infer.rt.m"`, true},
		{"reply", `Permissions Violation for Publish with Reply of "$JS.x"`, `publish to "$JS.x"`, false},
		{"a client's choice", `Permissions Violation for Publish to "_INBOX.a"`, "", false},
		{"another error", `Slow Consumer`, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDenials("infer")
			d.note(violation(tt.text), now)
			err := d.current(now.Add(time.Second))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, nats.ErrPermissionViolation)) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if err := d.current(now.Add(time.Hour)); (err != nil) != tt.later {
				t.Errorf("after an hour: %v", err)
			}
			d.connected()
			if err := d.current(now); err != nil {
				t.Errorf("after a reconnection: %v", err)
			}
		})
	}
}

// TestDeniedCallEndsAtOnce wants a call to end with what was denied, and others
// to go on.
func TestDeniedCallEndsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDenials("infer")
	inCall := func(about, text string) error {
		return d.permitted(t.Context(), about, func(ctx context.Context) error {
			d.note(violation(text), time.Now())
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
				return nil
			}
		})
	}
	const create = `Permissions Violation for Publish to "$JS.API.STREAM.CREATE.INFER"`
	if err := inCall("INFER", create); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "STREAM.CREATE.INFER") {
		t.Errorf("its own subject: %v", err)
	}
	if err := inCall("OTHER", create); err != nil {
		t.Errorf("another subject: %v", err)
	}
	if err := inCall("OTHER", `Permissions Violation for Subscription to "_INBOX.x.*"`); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("no inbox: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := d.permitted(ended, "INFER", func(ctx context.Context) error { return ctx.Err() })
	if !errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("ended by its own context: %v", err)
	}
	if len(d.watches) != 0 {
		t.Errorf("%d watches left", len(d.watches))
	}
}
