package worker

import (
	"fmt"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// choice is the version that a request is to run on.
type choice struct {
	key versions.Key
}

// choose returns the version of the model that serves a request, or why none
// does. Past is what earlier attempts left, nil at the first.
func (rt *route) choose(req *broker.Request, _ int, _ *broker.State) (choice, *broker.Error) {
	if req.Version == "" {
		return choice{key: rt.active}, nil
	}
	k, ok := rt.named[req.Version]
	if !ok {
		return choice{}, &broker.Error{
			Code:    broker.CodeUnknownVersion,
			Message: fmt.Sprintf("model %q is served in version %q, not %q", req.Model, rt.shown.Version, req.Version),
		}
	}
	return choice{key: k}, nil
}
