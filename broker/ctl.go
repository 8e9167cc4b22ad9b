package broker

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
