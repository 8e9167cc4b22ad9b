package workload

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// Plan is a law of requests.
type Plan struct {
	Seed     uint64   `json:"seed"`
	Arrivals Arrivals `json:"arrivals"`
	// Lengths of inputs, in the unit of each model's kind. The zero law leaves that
	// to each model's maker.
	Lengths Law `json:"lengths,omitzero"`
	// Outputs bounds the tokens of each answer. The zero law leaves that to the
	// model.
	Outputs    Law `json:"outputs,omitzero"`
	Models     Mix `json:"models"`
	Priorities Mix `json:"priorities"`
	// Clients are the last tokens of the subjects: the tenants.
	Clients Mix `json:"clients"`
	// Realtime is the share of requests that take the realtime path.
	Realtime float64 `json:"realtime"`
	// Final is the share of requests that want nothing but their final.
	Final float64 `json:"final"`
	// Cancel is the share of requests that are cancelled, CancelAfter their time.
	Cancel      float64       `json:"cancel"`
	CancelAfter time.Duration `json:"cancel_after_ns,omitempty"`
	// Deadline is the budget of a request; 0: none.
	Deadline time.Duration `json:"deadline_ns,omitempty"`
	// Beam is the width of a search; 0: none.
	Beam int `json:"beam,omitempty"`
	// Temperature of sampling, each request with a seed of its own; 0: greedy.
	Temperature float64 `json:"temperature,omitempty"`
	// Requests bounds the number of requests; 0: no bound.
	Requests int `json:"requests,omitempty"`
	// Makers make the inputs of each model.
	Makers map[string]*Maker `json:"-"`
	// Trace, unless nil, says when which requests are sent; what it leaves open is
	// drawn.
	Trace []Entry `json:"-"`
}

// Request is what is sent.
type Request struct {
	// Number counts from 0.
	Number int
	// At is when it is to be sent, since the start of the load; 0 in a closed load.
	At          time.Duration
	Model       string
	Client      string
	Priority    broker.Priority
	Realtime    bool
	Final       bool
	Input       broker.Input
	MaxTokens   int // 0: the model's bound
	Beam        int
	Temperature float64
	Seed        uint64 // of sampling
	Deadline    time.Duration
	CancelAfter time.Duration // 0: not cancelled
}

// Validate reports what is wrong with a plan.
func (p *Plan) Validate() error {
	errs := []error{p.ValidateLaws()}
	for _, name := range p.Models.Names {
		switch m := p.Makers[name]; {
		case m == nil:
			errs = append(errs, fmt.Errorf("model %s: nothing makes its inputs", name))
		case p.Lengths.draw == nil && m.Lengths.draw == nil && len(m.Inputs) == 0:
			errs = append(errs, fmt.Errorf("model %s: no law of lengths", name))
		}
	}
	if len(p.Models.Names) == 0 || len(p.Priorities.Names) == 0 || len(p.Clients.Names) == 0 {
		errs = append(errs, errors.New("models, priorities and clients: none may be empty"))
	}
	return errors.Join(errs...)
}

// ValidateLaws reports what is wrong with the numbers of a plan, whose models need
// not be known yet.
func (p *Plan) ValidateLaws() error {
	var errs []error
	if p.Trace == nil || p.Arrivals.Law == Closed {
		errs = append(errs, p.Arrivals.validate())
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"realtime", p.Realtime}, {"final", p.Final}, {"cancel", p.Cancel}} {
		if !(share.value >= 0 && share.value <= 1) {
			errs = append(errs, fmt.Errorf("%s %g: must be between 0 and 1", share.name, share.value))
		}
	}
	if p.Cancel > 0 && p.CancelAfter <= 0 {
		errs = append(errs, fmt.Errorf("cancel after %v: not positive", p.CancelAfter))
	}
	if p.Deadline < 0 {
		errs = append(errs, fmt.Errorf("deadline %v: negative", p.Deadline))
	}
	if p.Beam < 0 || p.Requests < 0 {
		errs = append(errs, fmt.Errorf("beam %d, requests %d: neither may be negative", p.Beam, p.Requests))
	}
	if !(p.Temperature >= 0 && p.Temperature <= math.MaxFloat32) {
		errs = append(errs, fmt.Errorf("temperature %g: must be a number of at least 0", p.Temperature))
	}
	return errors.Join(errs...)
}

// Planned is about how many requests are due before a time since the start: as many as
// the law gives on average, unless a trace says it. A closed load has no such number: 0.
func (p *Plan) Planned(until time.Duration) int {
	n := int(p.Arrivals.Rate * until.Seconds())
	switch {
	case p.Arrivals.Law == Closed:
		return 0
	case p.Trace != nil:
		n, _ = slices.BinarySearchFunc(p.Trace, until.Seconds(), func(e Entry, at float64) int { return cmp.Compare(e.Time, at) })
	}
	if p.Requests > 0 {
		n = min(n, p.Requests)
	}
	return n
}

// ValidPriority reports whether a name is a priority's.
func ValidPriority(name string) bool {
	p := broker.Priority(name)
	return p == broker.High || p == broker.Std || p == broker.Low
}
