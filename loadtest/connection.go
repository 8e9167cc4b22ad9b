package main

import (
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/load"
)

// watchConnection says at once when nc is lost and when it is there again, and keeps
// outages up to date. stop ends that, before nc is closed.
func watchConnection(nc *nats.Conn, outages *load.Outages, log io.Writer) (stop func()) {
	nc.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		outages.Lost(time.Now())
		say(log, "the load test's own connection was lost: %v", err)
	})
	nc.SetReconnectHandler(func(nc *nats.Conn) {
		say(log, "connected again, to %s, after %v", broker.RedactURL(nc.ConnectedUrl()), outages.Restored(time.Now()).Round(time.Millisecond))
	})
	nc.SetClosedHandler(func(nc *nats.Conn) {
		say(log, "the load test's own connection is closed, for good: %v", nc.LastError())
	})
	return func() {
		nc.SetDisconnectErrHandler(nil)
		nc.SetReconnectHandler(nil)
		nc.SetClosedHandler(nil)
	}
}

// oneAtATime lets several goroutines write.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements [io.Writer].
func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}
