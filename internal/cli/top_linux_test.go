package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// pseudoTerminal is a terminal whose user is the test.
type pseudoTerminal struct {
	user, program *os.File

	mu   sync.Mutex
	text bytes.Buffer // what was written to it
}

// newTerminal opens a terminal of a size.
func newTerminal(t *testing.T, width, height int) *pseudoTerminal {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = user.Close() }) // the reader may have
	var number int
	control(t, user, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		var err error
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = program.Close() })
	p := &pseudoTerminal{user: user, program: program}
	p.resize(t, width, height)
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := user.Read(buf)
			p.mu.Lock()
			p.text.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

// control makes a call about a file that stays one whose reads end with it.
func control(t *testing.T, f *os.File, call func(fd int) error) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

func (p *pseudoTerminal) resize(t *testing.T, width, height int) {
	t.Helper()
	size := &unix.Winsize{Col: uint16(width), Row: uint16(height)}
	control(t, p.user, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// modes are the terminal's settings.
func (p *pseudoTerminal) modes(t *testing.T) unix.Termios {
	t.Helper()
	modes, err := unix.IoctlGetTermios(int(p.program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *modes
}

func (p *pseudoTerminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.user.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// screen is the last whole screen that was drawn.
func (p *pseudoTerminal) screen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := strings.Split(p.text.String(), "\x1b[H")
	if len(parts) < 3 {
		return ""
	}
	return parts[len(parts)-2]
}

// all is everything that was written to the terminal.
func (p *pseudoTerminal) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// until waits for a screen.
func (p *pseudoTerminal) until(t *testing.T, what string, ok func(screen string) bool) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok(p.screen()) {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("never %s; the screen is\n%s", what, p.screen())
		}
	}
}

// startTop runs top in a terminal, as a shell does.
func startTop(t *testing.T, p *pseudoTerminal, args ...string) (*exec.Cmd, <-chan error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"top"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.program, p.program, p.program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return cmd, ended
}

// end waits for a program's exit code.
func end(t *testing.T, ended <-chan error) int {
	t.Helper()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0
	case <-time.After(patience):
		t.Fatal("does not end")
		return 0
	}
}

// TestTopInATerminal watches a worker under load in a terminal: keys, a change of
// size, a suspension, and the terminal as it was afterwards.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	w := launch(t, "worker", "--nats-url", server.URL(), "--admin", "", "--models", "g2p-en,langid", "--name", "edge-1")
	w.says(t, "msg=serving")
	load(t, server)
	p := newTerminal(t, 100, 30)
	before := p.modes(t)
	cmd, ended := startTop(t, p, "--nats-url", server.URL(), "--interval", "100ms")
	p.until(t, "shows a worker whose cells fill", func(s string) bool {
		return strings.Contains(s, "edge-1") && strings.Contains(s, "decoder") && strings.Contains(s, "█") && strings.Contains(s, "\x1b[32m")
	})
	if p.modes(t) == before {
		t.Error("the terminal has not been changed")
	}
	p.press(t, "/lang")
	p.until(t, "filters", func(s string) bool { return strings.Contains(s, "langid") && !strings.Contains(s, "g2p-en") })
	p.press(t, "\x1b") // a sequence would come in one piece
	p.until(t, "shows all again", func(s string) bool { return strings.Contains(s, "g2p-en") && strings.Contains(s, "sort: name") })
	p.press(t, "s")
	p.until(t, "sorts", func(s string) bool { return strings.Contains(s, "sort: running") })
	p.resize(t, 60, 12)
	p.until(t, "fits the new size", func(s string) bool { return strings.Count(s, "\r\n") == 11 })
	p.press(t, "\x1a") // nobody can continue a program without a shell: it comes back by itself
	p.until(t, "comes back", func(string) bool { return strings.Count(p.all(), "\x1b[?1049h") >= 2 })
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.press(t, "q")
	if code := end(t, ended); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkLeft(t, p, before)
}

// TestTopStopsAndContinues runs top from a shell: Ctrl-Z gives the terminal back to it,
// and fg draws the view anew, in the size that the terminal has by then.
func TestTopStopsAndContinues(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	p := newTerminal(t, 90, 20)
	before := p.modes(t)
	shell := exec.Command("/bin/sh", "-i")
	shell.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR=", "ENV=", "PS1=ready> ", "TOP="+os.Args[0], "URL="+server.URL())
	shell.Stdin, shell.Stdout, shell.Stderr = p.program, p.program, p.program
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	t.Cleanup(func() { _ = shell.Process.Kill() }) // it may have ended
	p.press(t, "\"$TOP\" top --nats-url \"$URL\"\n")
	p.until(t, "draws", func(s string) bool { return strings.Contains(s, "no worker answers") })
	for _, size := range [][2]int{{60, 12}, {110, 30}} {
		p.press(t, "\x1a")
		p.writes(t, "gives the terminal back", func(text string) bool {
			_, after, given := cutLast(text, "\x1b[?1049l")
			return given && strings.Contains(after, "ready> ") && !strings.Contains(after, "\x1b[H")
		})
		if now := p.modes(t); now != before {
			t.Errorf("stopped: the terminal is %+v, was %+v", now, before)
		}
		p.resize(t, size[0], size[1])
		p.press(t, "fg\n")
		p.until(t, "draws in the new size", func(s string) bool {
			return strings.Contains(s, "no worker answers") && strings.Count(s, "\r\n") == size[1]-1
		})
		if p.modes(t) == before {
			t.Error("continued: the terminal has not been changed")
		}
	}
	p.press(t, "q")
	p.writes(t, "ends", func(text string) bool {
		_, after, _ := cutLast(text, "\x1b[?1049l")
		return strings.Contains(after, "ready> ") && !strings.Contains(after, "\x1b[H")
	})
	checkLeft(t, p, before)
	p.press(t, "exit\n")
	if code := end(t, ended); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// cutLast cuts a text around the last time that it has another.
func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// writes waits for what is written to a terminal, of all that was.
func (p *pseudoTerminal) writes(t *testing.T, what string, ok func(text string) bool) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok(p.all()) {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("never %s: %q", what, p.all())
		}
	}
}

// checkLeft wants a terminal as it was.
func checkLeft(t *testing.T, p *pseudoTerminal, before unix.Termios) {
	t.Helper()
	if after := p.modes(t); after != before {
		t.Errorf("the terminal is %+v, was %+v", after, before)
	}
	timeout := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for text := p.all(); strings.LastIndex(text, "\x1b[?1049l") < strings.LastIndex(text, "\x1b[?1049h") || !strings.Contains(text, "\x1b[?25h"); text = p.all() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("the screen was not given back: %q", text[max(len(text)-200, 0):])
		}
	}
}

// TestTopInterrupted gives the terminal back after Ctrl-C and after a signal.
func TestTopInterrupted(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	for name, interrupt := range map[string]func(*pseudoTerminal, *exec.Cmd) error{
		"key":    func(p *pseudoTerminal, _ *exec.Cmd) error { p.press(t, "\x03"); return nil },
		"signal": func(_ *pseudoTerminal, cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) },
	} {
		p := newTerminal(t, 80, 24)
		before := p.modes(t)
		cmd, ended := startTop(t, p, "--nats-url", server.URL())
		p.until(t, "says that there is nobody", func(s string) bool { return strings.Contains(s, "no worker answers") })
		if err := interrupt(p, cmd); err != nil {
			t.Fatal(err)
		}
		if code := end(t, ended); code != 130 {
			t.Errorf("%s: exit code %d", name, code)
		}
		checkLeft(t, p, before)
	}
}

// TestTopInACrowd has more names announced than top shows, before it hears of a
// worker: the worker is shown, first of all.
func TestTopInACrowd(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	w := launch(t, "worker", "--nats-url", server.URL(), "--admin", "", "--models", "langid", "--name", "zzz")
	w.says(t, "msg=serving")
	nc, err := broker.Dial(t.Context(), server.URL(), "crowd", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	const crowd = 1100
	if _, err := nc.Subscribe("infer.watch", func(*nats.Msg) { // before the worker, which is slower
		for i := range crowd {
			name := fmt.Sprintf("fake-%04d", i)
			_ = nc.Publish("infer.live."+name, fmt.Appendf(nil, `{"v":1,"worker":%q,"state":"serving","interval_ms":1000}`, name)) // the connection ends with the test
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	out := run(t, "", "top", "--once", "--interval", "1s", "--nats-url", server.URL())
	_, workers, _ := strings.Cut(out.out, "EXECUTORS")
	_, first, _ := strings.Cut(workers, "\n")
	if out.code != 0 || !strings.HasPrefix(first, "zzz ") || !strings.Contains(out.out, "others announced themselves") {
		t.Errorf("code %d, %s: %.1500s", out.code, out.err, out.out)
	}
}

// load keeps a server's workers busy until the test ends.
func load(t *testing.T, server *broker.Server) {
	t.Helper()
	nc, err := broker.Dial(t.Context(), server.URL(), "load", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	const atOnce = 8
	for i := range atOnce {
		reply := fmt.Sprintf("infer.out.load.load%04d", i)
		ask := func() { _ = nc.PublishRequest("infer.rt.g2p-en.load", reply, []byte("incomprehensibilities")) } // the connection ends with the test
		sub, err := nc.Subscribe(reply, func(m *nats.Msg) {
			if f, err := broker.DecodeFrame(m.Data); err == nil && f.Type.Terminal() {
				ask()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() }) // the connection may be closed
		ask()
	}
}

// TestTopOnce prints a view for scripts, and refuses what it cannot show.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	out := run(t, "", "top", "--once", "--interval", "100ms", "--nats-url", server.URL())
	if out.code != 1 || !strings.Contains(out.err, "no worker answers") {
		t.Errorf("without a worker: %+v", out)
	}
	w := launch(t, "worker", "--nats-url", server.URL(), "--admin", "", "--models", "g2p-en", "--name", "edge-1")
	w.says(t, "msg=serving")
	load(t, server)
	for _, args := range [][]string{{"--once"}, {}} {
		out = run(t, "", append([]string{"top", "--interval", "200ms", "--nats-url", server.URL()}, args...)...)
		if out.code != 0 || !strings.Contains(out.out, "edge-1") || !strings.Contains(out.out, "decoder") || strings.Contains(out.out, "\x1b") {
			t.Errorf("%v: %+v", args, out)
		}
		if said := strings.Contains(out.err, "terminal"); said != (len(args) == 0) {
			t.Errorf("%v says %q", args, out.err)
		}
	}
	out = run(t, "", "top", "--once", "--json", "--interval", "100ms", "--nats-url", server.URL())
	var s broker.Snapshot
	if err := json.Unmarshal([]byte(out.out), &s); err != nil || s.Worker != "edge-1" || len(s.Models) != 1 {
		t.Errorf("%v: %+v", err, out)
	}
	if out = run(t, "", "top", "--interval", "1ms"); out.code != 2 || !strings.Contains(out.err, "--interval") {
		t.Errorf("a short interval: %+v", out)
	}
}
