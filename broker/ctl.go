package broker

import (
	"encoding/json"
	"errors"
	"fmt"
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

// readControl reads {"op": ...}; nothing asks for the status.
func readControl(payload []byte) (c Control, err error) {
	const longest = 256
	if len(payload) == 0 {
		return Control{Op: ControlStatus}, nil
	}
	if len(payload) > longest || json.Unmarshal(payload, &c) != nil {
		return Control{}, errors.New("malformed request")
	}
	if c.Op != ControlStatus && c.Op != ControlDrain {
		return Control{}, fmt.Errorf("unknown operation %s", clip(string(c.Op)))
	}
	return c, nil
}

// control serves infer.ctl.<worker>. Who may publish there is the server's
// matter: it is meant for operators.
func (s *Service) control(_, reply string, payload []byte) {
	var answer ControlReply
	c, err := readControl(payload)
	if err == nil {
		answer = s.cfg.Control(c)
	} else {
		answer.Error = err.Error()
	}
	answer.Worker = s.cfg.Worker
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
