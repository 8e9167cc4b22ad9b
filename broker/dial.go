package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// absentEvery is the shortest time between two warnings about a server that
// cannot be reached.
const absentEvery = 10 * time.Second

// dial connects, or returns as soon as ctx ends: a server that accepts and says
// nothing would hold the library for its whole timeout. Its error is ready for
// users: it names the server and no password.
func dial(ctx context.Context, url string, opts []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	connected := make(chan result)
	go func() {
		nc, err := nats.Connect(url, opts...)
		select {
		case connected <- result{nc, err}:
		case <-ctx.Done():
			if err == nil {
				nc.Close() // too late
			}
		}
	}()
	r := result{}
	select {
	case r = <-connected:
		if r.err == nil && ctx.Err() != nil {
			r.nc.Close()
			r.err = ctx.Err()
		}
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if r.err != nil {
		return nil, fmt.Errorf("connect to %s: %w", RedactURL(url), urlCause(r.err))
	}
	return r.nc, nil
}

// OwnInbox makes the inboxes of a client's connection part of what only that
// client may subscribe to, where users have permissions: infer.out.<client>, with
// the prefix of the subjects in place of infer.
func OwnInbox(prefix, client string) nats.Option {
	return nats.CustomInboxPrefix(strings.TrimSuffix(subjects(prefix).out(client, ""), "."))
}

// warnAbsent logs failed tries to connect: the first one at once, others at
// most every absentEvery. The library calls the handler from one goroutine.
func warnAbsent(url string, log *slog.Logger) nats.Option {
	var last time.Time
	return nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
		if now := time.Now(); now.Sub(last) >= absentEvery {
			last = now
			log.Warn("nats server not reachable", slog.String("url", RedactURL(url)), slog.Any("error", urlCause(err)))
		}
	})
}
