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

// listen passes what the terminal and its user say by signals. SIGTSTP is not among them:
// a process that has ever listened to it is not stopped by it any more (package
// os/signal takes no handler of that signal away), and the kernel knows better than we do
// whether there is a shell that could continue us. In a terminal that is taken over Ctrl-Z
// is a key.
func listen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH, syscall.SIGCONT) }

// signal obeys one.
func (l *loop) signal(s os.Signal) error {
	if s == syscall.SIGCONT { // after a stop that nobody announced
		l.terminal.leave()
		return l.terminal.enter()
	}
	return nil // the size has changed, and what follows draws
}

// stopSelf stops the processes of the terminal's job, as Ctrl-Z does without us, and
// returns when they are continued, or were not stopped.
func stopSelf(signals <-chan os.Signal) {
	_ = syscall.Kill(0, syscall.SIGTSTP) // it goes on if that cannot be done
	timer := time.NewTimer(continueWait)
	defer timer.Stop()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGCONT {
				return
			}
		case <-timer.C:
			return
		}
	}
}
