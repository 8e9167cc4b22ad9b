package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// ErrNobody means that no worker answered.
var ErrNobody = errors.New("no worker answers")

// ErrInterrupted means that the user ended the view with Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// patience is how long the first worker may take to answer, beside an interval.
const patience = 3 * time.Second

// Config is what a view needs. The connection is the caller's.
type Config struct {
	Conn     *nats.Conn
	Prefix   string
	Interval time.Duration
	Colour   bool
	ASCII    bool
}

// watch passes what workers show to a channel until ctx ends.
func watch(ctx context.Context, cfg Config) (<-chan broker.LivePayload, <-chan error) {
	payloads, ended := make(chan broker.LivePayload), make(chan error, 1)
	go func() {
		ended <- broker.WatchLive(ctx, cfg.Conn, cfg.Prefix, cfg.Interval, func(p broker.LivePayload) {
			select {
			case payloads <- p:
			case <-ctx.Done():
			}
		})
	}()
	return payloads, ended
}

// Run shows the fleet in a terminal until the user quits or ctx ends, and leaves the
// terminal as it was, whatever happens.
func Run(ctx context.Context, cfg Config, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{cfg: cfg, screen: Screen{Colour: cfg.Colour, ASCII: cfg.ASCII}, terminal: &terminal{in: in, out: out}, signals: make(chan os.Signal, 8)}
	who, err := newCensus(cfg.Conn)
	if err != nil {
		return err
	}
	defer who.close()
	payloads, ended := watch(ctx, cfg)
	listen(l.signals)
	defer signal.Stop(l.signals)
	keys := readKeys(ctx, in)
	if err := l.terminal.enter(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer l.terminal.leave() // also when what follows panics
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	l.draw()
	for {
		fresh := true
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			return errors.Join(err, context.Cause(ctx))
		case p := <-payloads:
			l.fleet.Take(p, time.Now())
			fresh = false // the next tick shows it
		case m := <-who.answers:
			l.fleet.count(m.Data, time.Now())
			fresh = false // as above
		case <-tick.C:
			if l.fleet.Crowded() {
				who.ask(time.Now())
			}
		case s := <-l.signals:
			if err := l.signal(s); err != nil {
				return err
			}
		case k, more := <-keys:
			if !more {
				keys = nil // no keys any more, but signals
				continue
			}
			if quit, err := l.key(k); quit || err != nil {
				return err
			}
		}
		if fresh {
			l.draw()
		}
	}
}

// loop is a view in a terminal. One goroutine uses it.
type loop struct {
	cfg      Config
	fleet    Fleet
	screen   Screen
	terminal *terminal
	signals  chan os.Signal
	frozen   *View // what is shown while paused
}

// draw shows the fleet as it is.
func (l *loop) draw() {
	now := time.Now()
	l.fleet.Prune(now)
	v := l.frozen
	if v == nil {
		v = l.fleet.View(now)
	}
	shown := *v // drawing sorts and filters
	l.screen.Width, l.screen.Height = l.terminal.size()
	l.terminal.show(l.screen.Draw(&shown))
}

// suspend gives the terminal back and stops, until the user continues.
func (l *loop) suspend() error {
	l.terminal.leave()
	stopSelf(l.signals)
	return l.terminal.enter()
}
