package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// Once writes one view to out, as wide as width, or, as JSON, the snapshot of each
// worker in a line. It waits until every worker that answers has answered twice,
// which makes rates, but not for ever. It is [ErrNobody] when none does.
func Once(ctx context.Context, cfg Config, out io.Writer, width int, asJSON bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	who, err := newCensus(cfg.Conn)
	if err != nil {
		return err
	}
	defer who.close()
	payloads, ended := watch(ctx, cfg)
	f := &Fleet{}
	limit := time.NewTimer(patience + cfg.Interval)
	defer limit.Stop()
	var enough <-chan time.Time
	for waiting := true; waiting; {
		select {
		case p := <-payloads:
			f.Take(p, time.Now())
			if f.Crowded() {
				who.ask(time.Now())
			}
			known, rated := f.Known()
			if known > 0 && enough == nil {
				enough = time.After(2*cfg.Interval + cfg.Interval/2) // workers answer at about the same time
			}
			waiting = known == 0 || rated < known || asJSON && enough != nil && known != rated
		case m := <-who.answers:
			f.count(m.Data, time.Now())
		case <-enough:
			waiting = false
		case <-limit.C:
			waiting = false
		case err := <-ended:
			return errors.Join(err, context.Cause(ctx))
		}
	}
	if known, _ := f.Known(); known == 0 {
		return nobody(f)
	}
	if asJSON {
		return writeJSON(out, f)
	}
	s := &Screen{Width: width, Colour: cfg.Colour, ASCII: cfg.ASCII}
	for _, l := range s.Draw(f.View(time.Now())) {
		if _, err := fmt.Fprintln(out, l); err != nil {
			return err
		}
	}
	return nil
}

func nobody(f *Fleet) error {
	if f.LastRefusal != nil {
		return fmt.Errorf("%w: %d messages refused, the last since %w", ErrNobody, f.Refused, f.LastRefusal)
	}
	return ErrNobody
}

func writeJSON(out io.Writer, f *Fleet) error {
	for _, s := range f.Snapshots() {
		if err := json.NewEncoder(out).Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// Stream writes every snapshot as JSON, one a line, until ctx ends.
func Stream(ctx context.Context, cfg Config, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	payloads, ended := watch(ctx, cfg)
	for {
		select {
		case p := <-payloads:
			s, err := broker.DecodeSnapshot(p.Payload)
			if err != nil {
				continue
			}
			if err := json.NewEncoder(out).Encode(s); err != nil {
				return err
			}
		case err := <-ended:
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
