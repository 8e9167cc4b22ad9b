package broker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestRealtimeReplies tells where the frames of a core request may go, and whose
// request it is, with and without permissions of users.
func TestRealtimeReplies(t *testing.T) {
	t.Parallel()
	const ok, no = true, false
	tests := []struct {
		name, subject, reply string
		client               string
		open, authorized     bool // taken while users have no permissions, and while they have
	}{
		{"short form, inbox", "infer.rt.m", "_INBOX.abc.1", "", ok, ok},
		{"short form, a worker's inbox", "infer.rt.m", "_INBOX_cellmq.w1.abc", "", ok, no},
		{"short form, bare prefix", "infer.rt.m", "_INBOX.", "", no, no},
		{"short form, a client's stream", "infer.rt.m", "infer.out.c1.abcdefgh", "c1", ok, no},
		{"short form, other subject", "infer.rt.m", "my.inbox", "", ok, no},
		{"short form, cancel", "infer.rt.m", "infer.cancel.c2", "", no, no},
		{"short form, api", "infer.rt.m", "$JS.API.STREAM.DELETE.INFER", "", no, no},
		{"long form, own stream", "infer.rt.m.c1", "infer.out.c1.abcdefgh", "c1", ok, ok},
		{"long form, own inbox", "infer.rt.m.c1", "infer.out.c1.abc.def", "c1", ok, ok},
		{"long form, other's stream", "infer.rt.m.c1", "infer.out.c2.abcdefgh", "", no, no},
		{"long form, longer name", "infer.rt.m.c1", "infer.out.c12.abcdefgh", "", no, no},
		{"long form, no id", "infer.rt.m.c1", "infer.out.c1.", "", no, no},
		{"long form, wildcard", "infer.rt.m.c1", "infer.out.c1.*", "", no, no},
		{"long form, inbox", "infer.rt.m.c1", "_INBOX.abc.1", "", no, no},
		{"long form, kept stream", "infer.rt.m.c1", "infer.outr.c1.abcdefgh", "", no, no},
		{"long form, final", "infer.rt.m.c1", "infer.final.c1.abcdefgh", "", no, no},
		{"long form, none", "infer.rt.m.c1", "", "", no, no},
		{"long form, bad client", "infer.rt.m.c 1", "infer.out.c 1.abcdefgh", "", no, no},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, authorized := range []bool{false, true} {
				d := newTestDecoder()
				d.authorized = func() bool { return authorized }
				want := tt.open
				if authorized {
					want = tt.authorized
				}
				r, bad := d.core("m", message{subject: tt.subject, reply: tt.reply, payload: []byte("x")}, time.Now())
				reply, client := "", ""
				if want {
					reply, client = tt.reply, tt.client
				}
				if r.Reply != reply || r.Client != client || (bad == nil) != want {
					t.Errorf("authorized %v: reply %q, client %q, %v", authorized, r.Reply, r.Client, bad)
				}
			}
		})
	}
}

// TestReplyToNeedsNoPermissions wants the header that names another reply to be
// refused where it would get around permissions, unless the worker is told so.
func TestReplyToNeedsNoPermissions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		prefixes   []string
		authorized bool
		to         string
		want       bool
	}{
		{"inbox", nil, false, "_INBOX.a", true},
		{"inbox with permissions", nil, true, "_INBOX.a", false},
		{"other's stream", nil, false, "infer.out.c2.abcdefgh", false},
		{"other's stream with permissions", nil, true, "infer.out.c2.abcdefgh", false},
		{"listed", []string{"answers."}, true, "answers.a", true},
		{"listed, inbox", []string{"answers."}, false, "_INBOX.a", false},
		{"none", []string{}, false, "_INBOX.a", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &decoder{
				subjects: "infer", replyPrefixes: tt.prefixes, maxPayload: 1 << 20,
				authorized: func() bool { return tt.authorized },
			}
			now := time.UnixMilli(1_000_000)
			m := message{subject: "infer.req.m.std.c1", header: nats.Header{HeaderReplyTo: {tt.to}}, payload: []byte("x")}
			r, bad := d.durable(m, 7, now, now)
			if tt.want && (r.Reply != tt.to || bad != nil) || !tt.want && (r.Reply != "infer.out.c1.s0000000007" || bad == nil) {
				t.Errorf("reply %q, %v", r.Reply, bad)
			}
		})
	}
}
