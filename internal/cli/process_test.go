package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// program is a process of its own.
type program struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of its end

	mu  sync.Mutex
	log bytes.Buffer
}

// Write takes the program's stderr.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *program) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// launch starts the program with arguments.
func launch(t *testing.T, args ...string) *program {
	t.Helper()
	return launchIn(t, nil, args...)
}

// launchIn is launch with variables, NAME=value, beside those of the test.
func launchIn(t *testing.T, environment []string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), environment...), asProgram+"=1")
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%v:\n%s", args, p.stderr())
		}
	})
	return p
}

// says waits until the program's log contains text.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(p.stderr(), text) {
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatalf("ended without saying %q: %v", text, p.err)
		case <-timeout:
			t.Fatalf("does not say %q", text)
		}
	}
}

// ends waits until the program has ended, successfully.
func (p *program) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("ended with %v", p.err)
		}
	case <-time.After(patience):
		t.Error("does not end")
	}
}

// TestTerminateUnderLoad ends one of two workers while both are busy: every
// request gets one final, whoever gives it.
func TestTerminateUnderLoad(t *testing.T) {
	t.Parallel()
	requests := 1500
	if testing.Short() || raced {
		requests = 160
	}
	server := brokertest.Server(t)
	common := []string{"worker", "--nats-url", server.URL(), "--admin", "127.0.0.1:0", "--slots", "16", "--log-level", "debug", "--models", "g2p-en"}
	first := launch(t, append(common, "--name", "first")...)
	second := launch(t, append(common, "--name", "second")...)
	first.says(t, "msg=serving")
	second.says(t, "msg=serving")

	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	out, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"hello", "queue", "the", "serendipity"}
	outputs := map[string]string{}
	for i := range requests {
		m := nats.NewMsg("infer.req.g2p-en.std.me")
		m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("request%05d", i))
		m.Data = []byte(words[i%len(words)])
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	finals := map[string]int{}
	for len(finals) < requests {
		m, err := out.NextMsg(patience)
		if err != nil {
			t.Fatalf("after %d finals: %v", len(finals), err)
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		switch f.Type {
		case broker.FrameFinal:
		case broker.FrameError:
			t.Fatalf("%s: %v", f.ID, f.Error)
		default:
			continue
		}
		finals[f.ID]++
		var i int
		if _, err := fmt.Sscanf(f.ID, "request%05d", &i); err != nil {
			t.Fatal(err)
		}
		word := words[i%len(words)]
		if before, ok := outputs[word]; ok && before != f.Text {
			t.Errorf("%s: %q and %q", word, before, f.Text)
		}
		outputs[word] = f.Text
		if len(finals) == requests/4 {
			if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	first.ends(t)
	if m, err := out.NextMsg(200 * time.Millisecond); err == nil {
		t.Errorf("after the last final: %s", m.Data)
	}
	for id, n := range finals {
		if n != 1 {
			t.Errorf("%s has %d finals", id, n)
		}
	}
	for _, p := range []*program{first, second} {
		if strings.Count(p.stderr(), "outcome=stop") == 0 {
			t.Errorf("%v served nothing", p.cmd.Args)
		}
	}
	if log := first.stderr(); !strings.Contains(log, "msg=draining") || !strings.Contains(log, "msg=drained") {
		t.Error("the first worker did not drain")
	}
	if err := second.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	second.ends(t)
}

// TestWorkerAndRequest is the README's two terminals.
func TestWorkerAndRequest(t *testing.T) {
	t.Parallel()
	args := []string{"worker", "--data-dir", t.TempDir(), "--port", "0", "--admin", "127.0.0.1:0"}
	if raced { // where starting four models takes long
		args = append(args, "--models", "g2p-en")
	}
	w := launch(t, args...)
	w.says(t, "msg=serving")
	_, rest, ok := strings.Cut(w.stderr(), "embedded server started")
	_, rest, ok2 := strings.Cut(rest, " url=")
	url, _, ok3 := strings.Cut(rest, " ")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("the log has no URL: %s", w.stderr())
	}
	run(t, "", "request", "--nats-url", url, "g2p-en", "cellular batching").want(t, 0, "S EH1 L Y AH0 L ER0 | B AE1 CH IH0 NG\n", "")
	run(t, "", "request", "--nats-url", url, "g2p-en", "hello", "--rt", "--client", "me", "--id", "0123456789").want(t, 0, "HH EH1 L OW0\n", "")
	run(t, "", "cancel", "--nats-url", url, "0123456789", "--client", "me").want(t, 0, "finished\n", "")
	run(t, "", "cancel", "--nats-url", url, "9876543210", "--client", "me").want(t, 1, "unknown\n", "")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.ends(t)
}

// TestQueuedWithoutWorker tells the user why nothing comes.
func TestQueuedWithoutWorker(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	conn := brokertest.Connect(t, server, broker.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := conn.EnsureStreams(ctx, []string{"g2p-en"}); err != nil {
		t.Fatal(err)
	}
	r := run(t, "", "request", "--nats-url", server.URL(), "g2p-en", "hello", "--timeout", "4s")
	r.want(t, 1, "", "no worker has taken it yet")
	r.want(t, 1, "", "--timeout")
}

// TestNotQueuedYet does not call a request queued that nobody has confirmed.
func TestNotQueuedYet(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	conn := brokertest.Connect(t, server, broker.Config{})
	if _, err := conn.NATS().SubscribeSync("infer.req.>"); err != nil { // and never answers
		t.Fatal(err)
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	r := run(t, "", "request", "--nats-url", server.URL(), "g2p-en", "hello", "--timeout", "4s")
	r.want(t, 1, "", "no receipt of the request yet")
	if strings.Contains(r.err, "queued") {
		t.Errorf("stderr %s", r.err)
	}
}

// TestCancelAtItsPlace names the place in the queue.
func TestCancelAtItsPlace(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	conn := brokertest.Connect(t, server, broker.Config{})
	s, err := conn.Serve(t.Context(), broker.ServiceConfig{Worker: "w", Cancel: func(client, id string, seq uint64) broker.CancelState {
		if client == "me" && id == "9876543210" && seq == 42 {
			return broker.CancelQueued
		}
		if state, ok := strings.CutPrefix(id, "state"); ok {
			return broker.CancelState(state)
		}
		return broker.CancelRunning
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	run(t, "", "cancel", "--nats-url", server.URL(), "9876543210", "--client", "me", "--seq", "42").want(t, 0, "queued\n", "")
	run(t, "", "cancel", "--nats-url", server.URL(), "9876543210", "--client", "me").want(t, 0, "running\n", "")
	for _, state := range []string{"admitted", "finished", "running"} {
		run(t, "", "cancel", "--nats-url", server.URL(), "state"+state, "--client", "me").want(t, 0, state+"\n", "")
	}
	run(t, "", "cancel", "--nats-url", server.URL(), "stateunknown", "--client", "me").want(t, 1, "unknown\n", "")
}
