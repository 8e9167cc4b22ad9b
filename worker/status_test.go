package worker_test

import (
	"fmt"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestStatusHeaders sends requests with the header in which the server speaks, with
// a payload and without: each has its terminal frame, and those that fail their
// letter, with the header.
func TestStatusHeaders(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{failing(t)}}, func(c *worker.Config) { c.MaxAttempts = 1 })
	nc := connect(t, server)
	statuses := []string{"100", "204", "404", "503", "999"}
	for i, status := range statuses {
		for payload, code := range map[string]broker.Code{"": broker.CodeBadRequest, `{"input":[1,2]}`: broker.CodeNumericalError} {
			id := fmt.Sprintf("statusid%d%d", i, len(payload))
			sub := subscribe(t, nc, "infer.out.evil."+id)
			publish(t, nc, "infer.req.failing.std.evil", "", []byte(payload), broker.HeaderID, id, "Status", status)
			frames := untilTerminal(t, sub)
			if f := frames[len(frames)-1]; f.Type != broker.FrameError || f.Error.Code != code {
				t.Errorf("status %s, payload %q: %+v", status, payload, f.Error)
			}
		}
	}
	letters, err := brokerConn(t, server).Letters(t.Context(), "", 0, 100)
	if err != nil || len(letters) != len(statuses) {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	for i, l := range letters {
		if got := l.Header["Status"]; len(got) != 1 || got[0] != statuses[i] {
			t.Errorf("letter %d: header %v", i, l.Header)
		}
	}
}
