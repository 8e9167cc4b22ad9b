package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// tally counts how often each text was served, and the epochs of the leases of
// durable requests for model a.
type tally struct {
	mu     sync.Mutex
	served map[string]int
	epochs map[uint64]bool
}

func newTally() *tally { return &tally{served: map[string]int{}, epochs: map[uint64]bool{}} }

func (y *tally) echo(d *broker.Delivery, s *broker.TokenStream) {
	y.mu.Lock()
	y.served[d.Request.Input.Text]++
	if !d.Lease.Core() && d.Request.Model == "a" {
		y.epochs[d.Lease.Epoch] = true
	}
	y.mu.Unlock()
	echo(d, s)
}

func (y *tally) count(text string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.served[text]
}

// twice returns the texts that were served more than once.
func (y *tally) twice() (texts []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for text, n := range y.served {
		if n > 1 {
			texts = append(texts, fmt.Sprint(text, ": ", n))
		}
	}
	return texts
}

// constantly asks for model a with both paths until stop is called, which returns
// how many were answered. Each has a text of its own.
func constantly(t *testing.T, server *broker.Server) (stop func() int) {
	t.Helper()
	c := newClient(t, server, broker.ClientConfig{})
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var running sync.WaitGroup
	var answered atomic.Int64
	loop := func(path string, ask func(text string) error) {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := ask(fmt.Sprint(path, " ", i)); err != nil {
					t.Errorf("%s %d: %v", path, i, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for k := range 2 {
		loop(fmt.Sprint("durable ", k), func(text string) error {
			<-time.After(time.Millisecond) // leaves the processor to others
			s, err := c.Request(context.Background(), "a", broker.RequestOptions{Input: broker.Input{Text: text}, Deadline: time.Now().Add(15 * time.Second)})
			if err != nil {
				return err
			}
			f, err := s.Final()
			if err == nil && (f.Text != text || f.Attempt != 1) {
				err = fmt.Errorf("answered %q in attempt %d", f.Text, f.Attempt)
			}
			return err
		})
		loop(fmt.Sprint("realtime ", k), func(text string) error {
			for { // the answer comes before the credit is back, so a busy machine may have none left
				<-time.After(time.Duration(k) * time.Millisecond)
				m, err := nc.Request("infer.rt.a", []byte(text), 15*time.Second)
				switch {
				case err != nil:
					return err
				case strings.Contains(string(m.Data), `"accepted"`):
					return nil
				case !strings.Contains(string(m.Data), `"busy"`):
					return fmt.Errorf("answered %s", m.Data)
				}
			}
		})
	}
	return func() int {
		cancel()
		running.Wait()
		return int(answered.Load())
	}
}

// served describes models of one version.
func served(version string, names ...string) (out []broker.ServedModel) {
	for _, n := range names {
		out = append(out, broker.ServedModel{Name: n, Version: version, Digest: "digest of " + version})
	}
	return out
}

// TestModelsComeAndGoUnderLoad adds and removes model b, 50 times, while model a
// has constant load and changes its version: of its requests none is lost, none is
// served twice and none finds nobody.
func TestModelsComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	y := newTally()
	w := startWorker(t, conn, []string{"a"}, 32, y.echo)
	credits := broker.NewCredits(32)
	svc := serve(t, conn, broker.ServiceConfig{Models: served("0", "a"), Credits: credits}, y.echo)
	stop := constantly(t, server)
	c := newClient(t, server, broker.ClientConfig{})
	nc := conn.NATS()
	for round := range 50 {
		both := []string{"a", "b"}
		if round%10 == 0 { // of what is there too
			if err := errors.Join(conn.EnsureStreams(t.Context(), both), conn.EnsureConsumers(t.Context(), both)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(svc.SetModels(t.Context(), served(strconv.Itoa(round), both...)), w.intake.SetModels(both)); err != nil {
			t.Fatal(err)
		}
		for _, realtime := range []bool{true, false} {
			s, err := c.Request(t.Context(), "b", broker.RequestOptions{Input: broker.Input{Text: fmt.Sprint("b ", round, realtime)}, Realtime: realtime})
			if err != nil {
				t.Fatal(err)
			}
			read(t, s)
		}
		if err := errors.Join(w.intake.SetModels(both[:1]), svc.SetModels(t.Context(), served(strconv.Itoa(round), "a"))); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request("infer.rt.b", nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("round %d: model b after it left: %v", round, err)
		}
	}
	answered := stop()
	if twice := y.twice(); len(twice) > 0 {
		t.Errorf("served more than once: %v", twice)
	}
	w.stop()
	eventually(t, "credits come back", func() bool { return credits.Free() == 32 })
	st := w.intake.Stats()
	if st.Failures > 0 {
		t.Logf("%d pulls got no answer in time, and were repeated", st.Failures)
	}
	if answered < 100 || st.Failures > 3 || st.Redelivered != 0 || w.credits.Free() != 32 || len(y.epochs) != 1 {
		t.Errorf("%d answered, %+v, %d credits, epochs %v", answered, st, w.credits.Free(), y.epochs)
	}
}

// TestRemovedModelDeliversWhatWasOnItsWay removes a model in the middle of its
// requests, again and again. Each is served once: what the server has sent at
// once, the others when the model is back. A lease that was lost on the way would
// show, since it ends much later.
func TestRemovedModelDeliversWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{AckWait: time.Minute})
	y := newTally()
	w := startWorker(t, conn, []string{"a", "b"}, 32, y.echo)
	c := newClient(t, server, broker.ClientConfig{})
	const each = 40
	early, late := 0, 0
	for round := range 20 {
		var streams []*broker.Stream
		for i := range each {
			s, err := c.Request(t.Context(), "b", broker.RequestOptions{
				Input: broker.Input{Text: fmt.Sprint(round, " ", i)}, Deadline: time.Now().Add(30 * time.Second),
			})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
			if i == 2*round {
				if round%2 == 1 {
					eventually(t, "some are served", func() bool { return y.count(fmt.Sprint(round, " 0")) > 0 })
				}
				if err := w.intake.SetModels([]string{"a"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		eventually(t, "all are answered or queued", func() bool {
			begun := 0
			for i := range each {
				begun += y.count(fmt.Sprint(round, " ", i))
			}
			return w.credits.Free() >= 32-3 && int(queued(t, conn))+begun == each // polls of a have three
		})
		left := int(queued(t, conn))
		early, late = early+each-left, late+left
		if _, f := read(t, ask(t, c, "a", fmt.Sprint("a ", round))); f.Attempt != 1 {
			t.Errorf("round %d: model a in attempt %d", round, f.Attempt)
		}
		eventually(t, "that one has left the queue, and no other", func() bool {
			n := int(queued(t, conn))
			if n < left {
				t.Fatalf("round %d: of %d requests for the model that left %d are queued later", round, left, n)
			}
			return n == left
		})
		if err := w.intake.SetModels([]string{"b", "a"}); err != nil {
			t.Fatal(err)
		}
		for _, s := range streams {
			read(t, s)
		}
	}
	w.stop()
	if twice := y.twice(); len(twice) > 0 || early == 0 || late == 0 || w.credits.Free() != 32 {
		t.Errorf("%d before the removal, %d after, twice %v, %d credits", early, late, twice, w.credits.Free())
	}
}

func ask(t *testing.T, c *broker.Client, model, text string) *broker.Stream {
	t.Helper()
	s, err := c.Request(t.Context(), model, broker.RequestOptions{Input: broker.Input{Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestModelComesBackAtOnce takes a model away and gives it back before its queues
// have left, or when some have: all are pulled again.
func TestModelComesBackAtOnce(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	w := startWorker(t, conn, []string{"a", "b"}, 16, echo)
	c := newClient(t, server, broker.ClientConfig{})
	for round := range 200 {
		if err := w.intake.SetModels([]string{"a"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(round%20) * 100 * time.Microsecond)
		if err := w.intake.SetModels([]string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		if round%10 > 0 {
			continue
		}
		for _, p := range []broker.Priority{broker.High, broker.Std, broker.Low} {
			s, err := c.Request(t.Context(), "b", broker.RequestOptions{
				Input: broker.Input{Text: "x"}, Priority: p, Deadline: time.Now().Add(15 * time.Second),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, f := read(t, s); f.Text != "x" {
				t.Fatalf("round %d, %s: %+v", round, p, f)
			}
		}
	}
	w.stop()
	if st := w.intake.Stats(); st.Failures != 0 || w.credits.Free() != 16 {
		t.Errorf("%+v, %d credits", st, w.credits.Free())
	}
}

// TestNewModelIsPulledWithin measures how soon a request is served that waits for
// its model: well before a poll ends, also when polls have all credits.
func TestNewModelIsPulledWithin(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 16} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			server, conn := setup(t, broker.Config{})
			began := make(chan time.Time, 1)
			w := startWorker(t, conn, []string{"a", "b"}, slots, func(d *broker.Delivery, s *broker.TokenStream) {
				began <- time.Now()
				echo(d, s)
			})
			c := newClient(t, server, broker.ClientConfig{})
			var waits []time.Duration
			for i := range 11 {
				if err := w.intake.SetModels([]string{"a"}); err != nil {
					t.Fatal(err)
				}
				for range 2 { // time to take notice
					read(t, ask(t, c, "a", "x"))
					<-began
				}
				eventually(t, "these have left the queue", func() bool { return queued(t, conn) == 0 })
				s := ask(t, c, "b", strconv.Itoa(i))
				eventually(t, "it is queued", func() bool { return queued(t, conn) == 1 || len(began) > 0 })
				start := time.Now()
				if err := w.intake.SetModels([]string{"a", "b"}); err != nil {
					t.Fatal(err)
				}
				read(t, s)
				if wait := (<-began).Sub(start); wait > 0 { // else b was still pulled
					waits = append(waits, wait)
				}
			}
			slices.Sort(waits)
			if len(waits) < 6 || waits[len(waits)/2] > 100*time.Millisecond {
				t.Errorf("%v", waits)
			}
		})
	}
}

// TestSetModelsRefuses what cannot be served, and changes nothing then.
func TestSetModelsRefuses(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	w := startWorker(t, conn, []string{"a"}, 2, echo)
	svc := serve(t, conn, broker.ServiceConfig{Models: served("1", "a"), Credits: broker.NewCredits(2)}, echo)
	for _, names := range [][]string{{"b", "B"}, {""}, {"b", "x.y"}} {
		if err := w.intake.SetModels(names); err == nil {
			t.Errorf("intake of %q", names)
		}
		if err := svc.SetModels(t.Context(), served("1", names...)); err == nil {
			t.Errorf("service of %q", names)
		}
	}
	if err := svc.SetModels(t.Context(), served("1", "b", "b")); err == nil {
		t.Error("service of a model twice")
	}
	if err := w.intake.SetModels([]string{"a", "a"}); err != nil { // a set
		t.Error(err)
	}
	c := newClient(t, server, broker.ClientConfig{})
	read(t, ask(t, c, "a", "x"))
	if _, err := conn.NATS().Request("infer.rt.a", []byte("x"), 10*time.Second); err != nil {
		t.Error(err)
	}
	bare, err := conn.Serve(t.Context(), broker.ServiceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bare.SetModels(t.Context(), served("1", "a")); err == nil {
		t.Error("service without a receiver of deliveries")
	}
	if err := bare.Close(); err != nil {
		t.Error(err)
	}
}
