package broker

import (
	"context"
	"errors"
)

// CancelState says what a cancel request found.
type CancelState string

// The states a worker or client reports.
const (
	// CancelUnknown: not ours. A worker that returns it stays silent; a client
	// gets it when no worker answered.
	CancelUnknown CancelState = "unknown"
	// CancelRunning: it was running and stops within a step.
	CancelRunning CancelState = "running"
	// CancelQueued: it was admitted, had not started, and will not.
	CancelQueued CancelState = "queued"
	// CancelFinished: it had ended before.
	CancelFinished CancelState = "finished"
)

// ServedModel describes a model for discovery.
type ServedModel struct {
	Name, Version, Digest string
}

// ServiceConfig describes what a worker serves beside the queue.
type ServiceConfig struct {
	// Worker names this worker in the service's metadata.
	Worker string
	// Version of the software, SemVer. Default "0.0.0".
	Version string
	// Models get an endpoint infer.rt.<model> each.
	Models []ServedModel
	// Credits bound the core requests held at once. None free: busy.
	Credits *Credits
	// Deliver takes a core request; it must not block. Required with Models.
	Deliver func(*Delivery)
	// Cancel handles a cancel request; it must not block. Nil: no endpoint.
	Cancel func(client, id string) CancelState
	// Stats is called for service statistics; its result is encoded as JSON.
	Stats func() any
}

// Service is the worker's face in NATS: core endpoints, cancellation,
// discovery and statistics.
type Service struct{}

// Serve registers the endpoints; they are reachable when it returns.
func (c *Conn) Serve(ctx context.Context, cfg ServiceConfig) (*Service, error) {
	return nil, errors.New("serve: not connected")
}

// Drain takes the worker out of the queue groups and of discovery; requests
// that have arrived are still delivered before it returns. Cancellation goes on.
func (s *Service) Drain(ctx context.Context) error { return nil }

// Close ends everything, cancellation too.
func (s *Service) Close() error { return nil }
