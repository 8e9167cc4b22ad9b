package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// serverLog passes the embedded server's warnings and errors to slog and
// remembers the first error, which explains a failed start.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	err   error
	fatal bool // the server has given up
}

func newServerLog(l *slog.Logger) *serverLog {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &serverLog{log: l}
}

func (l *serverLog) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *serverLog) gaveUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) fail(text string) {
	l.mu.Lock()
	if l.err == nil {
		l.err = errors.New(text)
	}
	l.mu.Unlock()
	l.log.Error("nats server error", slog.String("error", text))
}

// The methods of the server's logger interface.

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats server warning", slog.String("warning", fmt.Sprintf(format, v...)))
}

func (l *serverLog) Errorf(format string, v ...any) { l.fail(fmt.Sprintf(format, v...)) }

func (l *serverLog) Fatalf(format string, v ...any) {
	l.fail(fmt.Sprintf(format, v...))
	l.mu.Lock()
	l.fatal = true
	l.mu.Unlock()
}
