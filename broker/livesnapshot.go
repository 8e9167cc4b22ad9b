package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// ErrBadSnapshot means that a message is no live snapshot, or one that is out of
// bounds. The text names the field and its bound.
var ErrBadSnapshot = errors.New("bad live snapshot")

// LiveVersion is the version of [Snapshot] that this package writes and reads.
const LiveVersion = 1

// The bounds of a [Snapshot]. Who makes one keeps them; who reads one is told of
// a breach by [ErrBadSnapshot].
const (
	LiveModels    = 32  // models in a snapshot
	LiveVersions  = 8   // versions of a model
	LiveCells     = 32  // cells of a model
	LiveExecutors = 256 // executors
	LiveSteps     = 48  // recent steps
	LiveSlots     = 64  // slots of a recent step
	LiveOutcomes  = 32  // outcomes of a model
	LiveRows      = 13  // counts in a cell's rows by power of two
	liveText      = 128 // bytes of a text
	liveBytes     = 64 << 10
	liveMostRead  = 256 << 10
)

// The states of a worker in a [Snapshot].
const (
	LiveServing  = "serving"
	LiveUnready  = "unready"  // it takes no requests, Reason says why
	LiveDraining = "draining" // it finishes what runs
	LiveStopped  = "stopped"  // the last snapshot of a worker that ends in order
)

// Snapshot is what a worker shows of itself at one moment. It has no client's
// name, input or output. Counters (uint64) grow from the worker's start, and
// begin anew for a model that was unloaded; who watches takes differences.
type Snapshot struct {
	V        int    `json:"v"`
	Worker   string `json:"worker"`
	Version  string `json:"version"` // of the software
	ISA      string `json:"isa,omitempty"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Time     int64  `json:"time_ms"` // unix
	Uptime   int64  `json:"uptime_ms"`
	Interval int64  `json:"interval_ms"` // until the next one

	Slots           int `json:"slots"`
	Running         int `json:"running"`
	RealtimeSlots   int `json:"realtime_slots"`
	RealtimeRunning int `json:"realtime_running"`

	Tokens       uint64 `json:"tokens"`
	Steps        uint64 `json:"steps"`
	Rows         uint64 `json:"rows"`
	Redeliveries uint64 `json:"redeliveries"`
	Letters      uint64 `json:"letters"`

	MemoryBytes int64 `json:"memory_bytes"`
	BudgetBytes int64 `json:"budget_bytes,omitempty"` // 0: no bound

	Executors []LiveExecutor `json:"executors"`
	// Models are those with the most requests, if not all have room; MoreModels
	// counts the others.
	Models     []LiveModel `json:"models"`
	MoreModels int         `json:"more_models,omitempty"`
	// Recent are the last steps, the oldest first.
	Recent []LiveStep `json:"recent,omitempty"`
}

// LiveExecutor is an executor of a worker, by number. Threads is 0 when it does
// not run, Model and Cell are those of its last step.
type LiveExecutor struct {
	Threads int    `json:"threads"`
	BusyUS  uint64 `json:"busy_us"`
	Model   string `json:"model,omitempty"`
	Cell    string `json:"cell,omitempty"`
}

// LiveModel is a model on a worker.
type LiveModel struct {
	Name     string             `json:"name"`
	Versions []LiveModelVersion `json:"versions"`
	Running  int                `json:"running"`
	Tokens   uint64             `json:"tokens"`
	Outcomes map[string]uint64  `json:"outcomes,omitempty"` // requests that left, by outcome
	Queued   *LiveQueued        `json:"queued,omitempty"`   // nil: not known
	Latency  LiveLatency        `json:"latency"`
	Cells    []LiveCell         `json:"cells"`
}

// LiveModelVersion is a version of a model on a worker.
type LiveModelVersion struct {
	Version string `json:"version"`
	Digest  string `json:"digest,omitempty"` // its beginning
	Weights string `json:"weights,omitempty"`
	State   string `json:"state"`
	Running int    `json:"running"`
	Bytes   int64  `json:"bytes"`
}

// LiveQueued is how many requests for a model wait in the queue, that all workers
// share. Age is how old the figures are.
type LiveQueued struct {
	High uint64 `json:"high"`
	Std  uint64 `json:"std"`
	Low  uint64 `json:"low"`
	Age  int64  `json:"age_ms"`
}

// LiveLatency is how long requests took that ended in the last ten seconds.
type LiveLatency struct {
	Broker     LiveHistogram `json:"broker"`      // from publishing to arrival
	Queue      LiveHistogram `json:"queue"`       // from arrival to the step loop
	FirstToken LiveHistogram `json:"first_token"` // from arrival to the first token
	InterToken LiveHistogram `json:"inter_token"` // between tokens, the mean of each request
	Total      LiveHistogram `json:"total"`       // from publishing to the end
}

// LiveCell is a cell of a model.
type LiveCell struct {
	Name    string `json:"name"`
	MaxRows int    `json:"max_rows"`
	Steps   uint64 `json:"steps"`
	Rows    uint64 `json:"rows"`
	Ready   int    `json:"ready"`
	// RowsLog2 counts steps by their rows since somebody watches: 1, 2, 3 to 4, 5 to 8, and
	// so on. Zeros at the end are left out.
	RowsLog2 []uint64 `json:"rows_log2,omitempty"`
	// Reasons counts steps by why they ran.
	Reasons map[string]uint64 `json:"reasons,omitempty"`
}

// LiveStep is a step. Model and Cell are places in Models and in its Cells; Slots are
// where the rows' sequences have their state, of the first rows if there are more.
type LiveStep struct {
	Number   uint64  `json:"n"` // counts the steps that were watched
	Model    int     `json:"m"`
	Cell     int     `json:"c"`
	Executor int     `json:"x"`
	Micros   int64   `json:"us"`
	Rows     int     `json:"rows"`
	Slots    []int32 `json:"slots"`
}

// DecodeSnapshot reads a snapshot that anybody may have written. What it returns
// is within the bounds, and its texts have no control characters.
func DecodeSnapshot(payload []byte) (*Snapshot, error) {
	if len(payload) > liveMostRead {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrBadSnapshot, len(payload), liveMostRead)
	}
	s := &Snapshot{}
	if err := json.Unmarshal(payload, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if s.V != LiveVersion {
		return nil, fmt.Errorf("%w: v %d, this program reads %d", ErrBadSnapshot, s.V, LiveVersion)
	}
	c := &snapshotCheck{}
	c.snapshot(s)
	if c.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, c.err)
	}
	return s, nil
}

// snapshotCheck keeps the first breach of a bound.
type snapshotCheck struct{ err error }

func (c *snapshotCheck) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *snapshotCheck) most(field string, n, most int) {
	if n < 0 || n > most {
		c.fail("%s: %d, not within 0 to %d", field, n, most)
	}
}

// count wants a figure that is not negative.
func (c *snapshotCheck) count(field string, n int64) {
	if n < 0 {
		c.fail("%s: %d, below 0", field, n)
	}
}

func (c *snapshotCheck) text(field, s string) {
	switch {
	case len(s) > liveText:
		c.fail("%s: %d bytes, more than %d", field, len(s), liveText)
	case !utf8.ValidString(s):
		c.fail("%s: not UTF-8", field)
	default:
		for _, r := range s {
			if !unicode.IsPrint(r) {
				c.fail("%s: has %U, which is not printable", field, r)
			}
		}
	}
}

func (c *snapshotCheck) snapshot(s *Snapshot) {
	if !ValidClient(s.Worker) {
		c.fail("worker: %q is no name of a worker", clip(s.Worker))
	}
	c.text("version", s.Version)
	c.text("isa", s.ISA)
	c.text("state", s.State)
	c.text("reason", s.Reason)
	for field, n := range map[string]int64{
		"uptime_ms": s.Uptime, "interval_ms": s.Interval, "slots": int64(s.Slots), "running": int64(s.Running),
		"realtime_slots": int64(s.RealtimeSlots), "realtime_running": int64(s.RealtimeRunning),
		"memory_bytes": s.MemoryBytes, "budget_bytes": s.BudgetBytes, "more_models": int64(s.MoreModels),
	} {
		c.count(field, n)
	}
	c.most("executors", len(s.Executors), LiveExecutors)
	c.most("models", len(s.Models), LiveModels)
	c.most("recent", len(s.Recent), LiveSteps)
	for i := range s.Executors {
		c.most("executors.threads", s.Executors[i].Threads, 1<<16)
		c.text("executors.model", s.Executors[i].Model)
		c.text("executors.cell", s.Executors[i].Cell)
	}
	for i := range s.Models {
		c.model(&s.Models[i])
	}
	for i := range s.Recent {
		c.step(s, &s.Recent[i])
	}
}

func (c *snapshotCheck) model(m *LiveModel) {
	c.text("models.name", m.Name)
	c.count("models.running", int64(m.Running))
	c.most("models.versions", len(m.Versions), LiveVersions)
	c.most("models.cells", len(m.Cells), LiveCells)
	c.most("models.outcomes", len(m.Outcomes), LiveOutcomes)
	for outcome := range m.Outcomes {
		c.text("models.outcomes", outcome)
	}
	for _, v := range m.Versions {
		c.text("models.versions.version", v.Version)
		c.text("models.versions.digest", v.Digest)
		c.text("models.versions.weights", v.Weights)
		c.text("models.versions.state", v.State)
		c.count("models.versions.running", int64(v.Running))
		c.count("models.versions.bytes", v.Bytes)
	}
	if m.Queued != nil {
		c.count("models.queued.age_ms", m.Queued.Age)
	}
	for i := range m.Cells {
		cell := &m.Cells[i]
		c.text("models.cells.name", cell.Name)
		c.most("models.cells.max_rows", cell.MaxRows, 1<<16)
		c.count("models.cells.ready", int64(cell.Ready))
		c.most("models.cells.rows_log2", len(cell.RowsLog2), LiveRows)
		c.most("models.cells.reasons", len(cell.Reasons), LiveOutcomes)
		for reason := range cell.Reasons {
			c.text("models.cells.reasons", reason)
		}
	}
}

func (c *snapshotCheck) step(s *Snapshot, step *LiveStep) {
	c.most("recent.slots", len(step.Slots), LiveSlots)
	c.most("recent.rows", step.Rows, 1<<16)
	c.count("recent.x", int64(step.Executor))
	c.count("recent.us", step.Micros)
	if step.Model < 0 || step.Model >= len(s.Models) {
		c.fail("recent.m: %d, and there are %d models", step.Model, len(s.Models))
		return
	}
	c.most("recent.c", step.Cell, len(s.Models[step.Model].Cells)-1)
}
