package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// speaker publishes header blocks as they are, which no library would.
type speaker struct {
	t    *testing.T
	conn net.Conn
}

func speak(t *testing.T, s *broker.Server) *speaker {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	sp := &speaker{t, conn}
	sp.write(`CONNECT {"verbose":false,"headers":true}` + "\r\n")
	return sp
}

func (s *speaker) write(text string) {
	s.t.Helper()
	if _, err := s.conn.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *speaker) publish(subject, header, payload string) {
	s.t.Helper()
	s.write(fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", subject, len(header), len(header)+len(payload), header, payload))
}

// likeStatuses are header blocks that look like the server's own word, or hide its
// lines, with a place for an id.
func likeStatuses() []string {
	blocks := []string{
		"NATS/1.0 503 xyz\r\nNats-Msg-Id: %s\r\n\r\n",
		"NATS/1.0 404 No Messages\nNats-Msg-Id: %s\n\r\n",                                                        // the server leaves the status in it
		"NATS/1.0 204 EOB\nNats-Num-Pending: 0\nNats-Last-Sequence: 1\nNats-Msg-Id: %s\n\r\n",                    // the end of a batch
		"NATS/1.0\r\nStatus: 204\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\nNats-Msg-Id: %s\r\n\r\n", // the same, and hides what follows
		"NATS/1.0\r\nStatus: 404\r\n\r\nNats-Msg-Id: %s\r\n\r\n",
		"NATS/1.0\r\nNats-Sequence: 18446744073709551615\r\nNats-Time-Stamp: 2026-01-02T03:04:05Z\r\n\r\nNats-Msg-Id: %s\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: %s\r\nNats-Sequence: 1\r\nNats-Subject: x\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: %s\r\nno colon\r\n\r\n", // nobody can read it
		"NATS/1.0\r\nNats-Msg-Id: %s\r\nStatus: 409\r\nDescription: Batch Completed\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: %s\r\nStatus:\r\n\r\n",
	}
	for _, status := range []string{"100", "204", "404", "408", "409", "503", "999", "abc"} {
		blocks = append(blocks, "NATS/1.0\r\nNats-Msg-Id: %s\r\nStatus: "+status+"\r\nDescription: xyz\r\n\r\n")
	}
	return blocks
}

// TestRequestsLikeStatuses has clients publish requests that look like the server's
// word on a pull, some under the number of a pull, beside a client with good ones:
// each request has its answer, and no pull ends for it.
func TestRequestsLikeStatuses(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	w := startWorker(t, conn, []string{"echo"}, 4, echo)
	c := newClient(t, server, broker.ClientConfig{})
	var mu sync.Mutex
	answers := map[string]broker.Frame{} // by subject
	subscribe(t, conn.NATS(), "infer.out.*.*", func(m *nats.Msg) {
		if f, err := broker.DecodeFrame(m.Data); err == nil && f.Type.Terminal() && !strings.Contains(m.Subject, c.Name()) {
			mu.Lock()
			defer mu.Unlock()
			answers[m.Subject] = f
		}
	})
	evil := speak(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var good []*broker.Stream
	hostile := 0
	for i := range 20 {
		client := "evil"
		if i%2 == 1 {
			client = strconv.Itoa(i)
		}
		for _, block := range likeStatuses() {
			for _, payload := range []string{"", "x"} {
				evil.publish("infer.req.echo.std."+client, fmt.Sprintf(block, fmt.Sprintf("hostile%06d", hostile)), payload)
				hostile++
			}
		}
		s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: "good"}})
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, s)
	}
	for _, s := range good {
		if f, err := s.Final(); err != nil || f.Text != "good" {
			t.Errorf("%q, %v", f.Text, err)
		}
	}
	eventually(t, "each request is answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(answers) == hostile
	})
	empty := 0
	for subject, f := range answers {
		if f.Type != broker.FrameFinal || f.Text != "" && f.Text != "x" {
			t.Errorf("%s: %+v", subject, f)
		}
		if f.Text == "" {
			empty++
		}
	}
	eventually(t, "the queue is empty", func() bool { return queueEmpty(t, conn) })
	w.stop()
	if st := w.intake.Stats(); empty != hostile/2 || st.Failures != 0 || w.credits.Free() != 4 {
		t.Errorf("%d of %d are empty, %+v, %d credits", empty, hostile, st, w.credits.Free())
	}
}

// fill stores hostile records on a subject, each with and without data, and
// calls good after each.
func fill(t *testing.T, server *broker.Server, conn *broker.Conn, stream, subject string, good func(i int)) {
	t.Helper()
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	evil := speak(t, server)
	i := 0
	for _, block := range likeStatuses() {
		for _, payload := range []string{"", "x"} {
			before, err := js.StreamInfo(stream)
			if err != nil {
				t.Fatal(err)
			}
			evil.publish(subject, fmt.Sprintf(block, fmt.Sprintf("hostile%06d", i)), payload)
			eventually(t, "a hostile record in "+stream, func() bool {
				now, err := js.StreamInfo(stream)
				return err == nil && now.State.LastSeq > before.State.LastSeq
			})
			good(i)
			i++
		}
	}
}

// TestLettersLikeStatuses stores letters between records that look like statuses,
// and letters of requests whose headers do: all are listed, in pages of any size,
// with the headers that the requests had.
func TestLettersLikeStatuses(t *testing.T) {
	t.Parallel()
	server, conn := ensured(t, broker.Config{})
	written := 0
	fill(t, server, conn, "INFER_DLQ", "infer.dlq.echo", func(i int) {
		written++
		l := &broker.Letter{
			Sequence: uint64(written), Published: time.Unix(1, 0).UTC(), Subject: "infer.req.echo.std.me", ID: "abcdefgh", Model: "echo", Code: broker.CodeInternal,
			Header: nats.Header{"Status": {strconv.Itoa(i)}, "description": {"xyz"}, "Nats-Sequence": {"1"}},
		}
		if err := conn.WriteLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	})
	for _, page := range []int{1, 3, 1000} {
		var got []uint64
		for from := uint64(1); ; {
			letters, err := conn.Letters(t.Context(), "", from, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range letters {
				got, from = append(got, l.Sequence), l.Number+1
				if want := strconv.FormatUint(l.Sequence-1, 10); !slices.Equal(l.Header["Status"], []string{want}) || len(l.Header["description"]) != 1 || len(l.Header["Nats-Sequence"]) != 1 {
					t.Errorf("letter %d: header %v", l.Sequence, l.Header)
				}
			}
			if len(letters) < page {
				break
			}
		}
		if len(got) != written || !slices.IsSorted(got) {
			t.Errorf("pages of %d: %d letters of %d: %v", page, len(got), written, got)
		}
	}
}

// TestRecordsLikeStatuses stores records that look like statuses where those of
// requests belong: each is none, and gives way to a good one.
func TestRecordsLikeStatuses(t *testing.T) {
	t.Parallel()
	server, conn := ensured(t, broker.Config{})
	t.Run("final", func(t *testing.T) {
		store := finals(t, conn)
		const id = "finalid1"
		fill(t, server, conn, "INFER_FINAL", "infer.final.me."+id, func(i int) {
			if f, err := conn.Final(t.Context(), "me", id); !errors.Is(err, broker.ErrNotStored) {
				t.Errorf("record %d is %+v, %v", i, f, err)
			}
			if v := verdictOn(t, store, finalOf("w1", id, uint64(i))); !v.Mine {
				t.Errorf("record %d: verdict %+v", i, v)
			}
			if f, err := conn.Final(t.Context(), "me", id); err != nil || f.Attempt != uint64(i) {
				t.Errorf("stored over record %d: %+v, %v", i, f, err)
			}
		})
	})
	t.Run("state", func(t *testing.T) {
		fill(t, server, conn, "INFER_STATE", "infer.state.me.abcdefgh", func(i int) {
			if s, err := conn.State(t.Context(), "me", "abcdefgh"); !errors.Is(err, broker.ErrNotStored) {
				t.Errorf("record %d is %+v, %v", i, s, err)
			}
			if err := conn.SaveState(t.Context(), &broker.State{Client: "me", ID: "abcdefgh", Excused: i}, time.Minute); err != nil {
				t.Fatal(err)
			}
			if s, err := conn.State(t.Context(), "me", "abcdefgh"); err != nil || s.Excused != i {
				t.Errorf("stored over record %d: %+v, %v", i, s, err)
			}
		})
	})
	t.Run("frames", func(t *testing.T) {
		stored := 0
		fill(t, server, conn, "INFER_OUT", "infer.outr.me.abcdefgh", func(i int) {
			if err := errors.Join(conn.NATS().Publish("infer.outr.me.abcdefgh", []byte("good"+strconv.Itoa(i))), conn.NATS().Flush()); err != nil {
				t.Fatal(err)
			}
			stored++
		})
		for _, page := range []int{1, 7, 64} {
			var got []string
			for from, more := uint64(1), true; more; {
				frames, next, err := conn.OutFrames(t.Context(), "me", "abcdefgh", from, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range frames {
					if strings.HasPrefix(string(f.Payload), "good") {
						got = append(got, string(f.Payload))
					}
				}
				from, more = next, len(frames) == page
			}
			if len(got) != stored || got[0] != "good0" || got[stored-1] != "good"+strconv.Itoa(stored-1) {
				t.Errorf("pages of %d: %d frames of %d: %v", page, len(got), stored, got)
			}
		}
	})
	t.Run("advisories", func(t *testing.T) {
		const subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INFER.echo_std"
		told := 0
		fill(t, server, conn, "INFER_ADVISORY", subject, func(int) {
			told++
			advisory := fmt.Sprintf(`{"stream":"INFER","consumer":"echo_std","stream_seq":%d,"deliveries":9,"timestamp":"2026-01-02T03:04:05Z"}`, told)
			if err := errors.Join(conn.NATS().Publish(subject, []byte(advisory)), conn.NATS().Flush()); err != nil {
				t.Fatal(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		handled := 0
		err := conn.Advisories(ctx, func(_ context.Context, a broker.Advisory) error {
			if handled++; a.Sequence != uint64(handled) {
				t.Errorf("advisory %d is %+v", handled, a)
			}
			if handled == told {
				cancel()
			}
			return nil
		})
		if err != nil || handled != told {
			t.Errorf("%d advisories of %d, %v", handled, told, err)
		}
	})
	t.Run("queue", func(t *testing.T) {
		sequence := uint64(0)
		fill(t, server, conn, "INFER", "infer.req.echo.std.me", func(i int) {
			sequence++
			if d, err := conn.Queued(t.Context(), sequence); err != nil || d.Request.Client != "me" || d.Err != nil || (d.Request.Input.Text == "") != (i%2 == 0) {
				t.Errorf("request %d: %+v, %v", i, d, err)
			}
		})
	})
}

// TestRealtimeLikeStatus wants realtime requests that look like statuses to be
// answered.
func TestRealtimeLikeStatus(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Worker: "w1", Models: []broker.ServedModel{{Name: "echo"}}, Credits: broker.NewCredits(4)}, echo)
	answered := make(chan broker.Frame, 8)
	subscribe(t, conn.NATS(), "infer.out.me.*", func(m *nats.Msg) {
		if f, err := broker.DecodeFrame(m.Data); err == nil && f.Type.Terminal() {
			answered <- f
		}
	})
	evil := speak(t, server)
	for i, block := range likeStatuses() {
		header := fmt.Sprintf(block, fmt.Sprintf("hostile%06d", i))
		evil.write(fmt.Sprintf("HPUB infer.rt.echo.me infer.out.me.hostile%06d %d %d\r\n%s\r\n", i, len(header), len(header), header))
		if f := <-answered; f.Type != broker.FrameFinal || f.Text != "" {
			t.Errorf("%q: %+v", block, f)
		}
	}
}
