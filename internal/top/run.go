package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/term"

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

// Once writes one view to out, as wide as width, or, as JSON, the snapshot of each
// worker in a line. It waits until every worker that answers has answered twice,
// which makes rates, but not for ever. It is [ErrNobody] when none does.
func Once(ctx context.Context, cfg Config, out io.Writer, width int, asJSON bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	payloads, ended := watch(ctx, cfg)
	f := &Fleet{}
	limit := time.NewTimer(patience + cfg.Interval)
	defer limit.Stop()
	var enough <-chan time.Time
	for waiting := true; waiting; {
		select {
		case p := <-payloads:
			f.Take(p, time.Now())
			known, rated := f.Known()
			if known > 0 && enough == nil {
				enough = time.After(2*cfg.Interval + cfg.Interval/2) // workers answer at about the same time
			}
			waiting = known == 0 || rated < known || asJSON && enough != nil && known != rated
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

// Run shows the fleet in a terminal until the user quits or ctx ends, and leaves the
// terminal as it was, whatever happens.
func Run(ctx context.Context, cfg Config, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{cfg: cfg, screen: Screen{Colour: cfg.Colour, ASCII: cfg.ASCII}, terminal: &terminal{in: in, out: out}, signals: make(chan os.Signal, 8)}
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
		case <-tick.C:
		case s := <-l.signals:
			if err := l.signal(s); err != nil {
				return err
			}
		case k, more := <-keys:
			if !more {
				keys = nil // no keys any more, but signals
				continue
			}
			if k == keySuspend {
				if err := l.suspend(); err != nil {
					return err
				}
			} else if quit, err := l.key(k); quit || err != nil {
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
	stopSelf()
	listen(l.signals)
	return l.terminal.enter()
}

// key obeys a key.
func (l *loop) key(k key) (quit bool, err error) {
	s := &l.screen
	if s.Typing {
		return false, l.typing(k)
	}
	page := max(s.Height-6, 1)
	switch k {
	case 'q', 'Q':
		return true, nil
	case keyInterrupt:
		return true, ErrInterrupted
	case 's':
		s.Order = (s.Order + 1) % orders
	case 'S':
		s.Order = (s.Order + orders - 1) % orders
	case 'p', ' ':
		s.Paused = !s.Paused
		l.frozen = nil
		if s.Paused {
			l.frozen = l.fleet.View(time.Now())
		}
	case 'a':
		s.All = !s.All
	case '/':
		s.Typing = true
	case '?', 'h':
		s.Help = !s.Help
	case keyEscape:
		s.Filter, s.Help = "", false
	case keyUp, 'k':
		s.Scroll--
	case keyDown, 'j':
		s.Scroll++
	case keyPageUp:
		s.Scroll -= page
	case keyPageDown:
		s.Scroll += page
	case keyHome, 'g':
		s.Scroll = 0
	case keyEnd, 'G':
		s.Scroll = 1 << 20 // drawing keeps it within the lines
	}
	return false, nil
}

// longestFilter bounds a filter.
const longestFilter = 64

// typing takes a key of the filter.
func (l *loop) typing(k key) error {
	s := &l.screen
	switch {
	case k == keyInterrupt:
		return ErrInterrupted
	case k == keyEnter:
		s.Typing = false
	case k == keyEscape:
		s.Typing, s.Filter = false, ""
	case k == keyBackspace:
		s.Filter = s.Filter[:max(len(s.Filter)-1, 0)]
	case k > ' ' && k <= '~' && len(s.Filter) < longestFilter:
		s.Filter += string(rune(k))
	}
	return nil
}

// terminal is the user's, while it is in use.
type terminal struct {
	in, out *os.File
	before  *term.State // nil: as it was found
}

const (
	// An own screen without a cursor, and back.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	eraseRest   = "\x1b[K\r\n"
	eraseBelow  = "\x1b[K\x1b[J"
)

// enter takes the terminal over. It may be called again.
func (t *terminal) enter() error {
	if t.before == nil {
		before, err := term.MakeRaw(int(t.in.Fd()))
		if err != nil {
			return err
		}
		t.before = before
	}
	_, err := t.out.WriteString(enterScreen)
	return err
}

// leave gives the terminal back as it was. It may be called again.
func (t *terminal) leave() {
	if t.before == nil {
		return
	}
	_, _ = t.out.WriteString(leaveScreen)      // nobody is left to tell
	_ = term.Restore(int(t.in.Fd()), t.before) // as before
	t.before = nil
}

// size is columns and rows, 80x24 when the terminal does not say.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	const most = 1000
	return min(width, most), min(height, most)
}

// show writes lines over those that are there, in one piece.
func (t *terminal) show(lines []string) {
	b := []byte(goHome)
	for i, l := range lines {
		b = append(b, l...)
		if i < len(lines)-1 {
			b = append(b, eraseRest...)
		}
	}
	b = append(b, eraseBelow...)
	_, _ = t.out.Write(b) // the next one comes soon, and a terminal that has gone ends the keys
}
