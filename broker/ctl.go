package broker

import (
	"encoding/json"
	"log/slog"
)

// ControlOp is what an operator asks of one worker.
type ControlOp string

// The operations of infer.ctl.<worker>.
const (
	// ControlStatus asks how the worker is.
	ControlStatus ControlOp = "status"
	// ControlDrain asks the worker to take no more requests, finish what runs and
	// stop, as a termination signal does.
	ControlDrain ControlOp = "drain"
)

// Control is a request to one worker.
type Control struct {
	Op ControlOp `json:"op"`
}

// ControlReply is a worker's answer to a [Control].
type ControlReply struct {
	Worker string `json:"worker"`
	// State is serving or draining, after the operation.
	State string `json:"state"`
	// Status is the worker's own description of itself, encoded as JSON.
	Status any `json:"status,omitempty"`
	// Error says why the operation was refused; empty when it was not.
	Error string `json:"error,omitempty"`
}

// control serves infer.ctl.<worker>. Who may publish there is the server's
// matter: it is meant for operators.
func (s *Service) control(_, reply string, payload []byte) {
	const longest = 256
	var c Control
	answer := ControlReply{Worker: s.cfg.Worker, Error: "malformed request"}
	if len(payload) == 0 {
		c.Op = ControlStatus
	}
	if len(payload) == 0 || len(payload) <= longest && json.Unmarshal(payload, &c) == nil {
		switch c.Op {
		case ControlStatus, ControlDrain:
			answer = s.cfg.Control(c)
			answer.Worker = s.cfg.Worker
		default:
			answer.Error = "unknown operation " + clip(string(c.Op))
		}
	}
	if reply == "" {
		return
	}
	b, err := json.Marshal(answer)
	if err == nil {
		err = s.conn.send(reply, "", b)
	}
	if err != nil {
		s.conn.log.Warn("control answer not sent", slog.String("op", clip(string(c.Op))), slog.Any("error", err))
	}
}
