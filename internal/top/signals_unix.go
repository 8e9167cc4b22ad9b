//go:build unix

package top

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// continueWait is how long a process that asked to be stopped may take to come back
// when it was not stopped, since nobody could continue it.
const continueWait = 300 * time.Millisecond

// listen passes what the terminal and its user say by signals.
func listen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT) }

// signal obeys one.
func (l *loop) signal(s os.Signal) error {
	switch s {
	case syscall.SIGTSTP:
		return l.suspend()
	case syscall.SIGCONT: // after a stop that nobody announced
		l.terminal.leave()
		return l.terminal.enter()
	}
	return nil // the size has changed, and what follows draws
}

// stopSelf stops the processes of the terminal's job, as Ctrl-Z does without us, and
// returns when they are continued.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Reset(syscall.SIGTSTP)        // also for who listens, and does so again afterwards
	_ = syscall.Kill(0, syscall.SIGTSTP) // it goes on if that cannot be done
	timer := time.NewTimer(continueWait)
	defer timer.Stop()
	select {
	case <-continued:
	case <-timer.C:
	}
}
