package alternative_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/alternative"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

var _ load.Asker = (*alternative.Client)(nil)

// asked is what a fake server read.
type asked struct {
	ID        uint64 `json:"id"`
	Input     string `json:"input"`
	MaxTokens int    `json:"max_tokens"`
	server    int
	conn      net.Conn
}

// fakes starts servers that pass on what they are asked, and connects to them.
func fakes(t *testing.T, servers int) (*alternative.Client, <-chan asked) {
	t.Helper()
	requests := make(chan asked, 16) // more than any test sends
	var addresses []string
	var serving sync.WaitGroup
	for i := range servers {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		serving.Go(func() {
			conn, err := l.Accept()
			_ = l.Close()
			if err != nil {
				return
			}
			serve(t, conn, i, requests)
		})
	}
	c, err := alternative.Dial(t.Context(), addresses, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return c, requests
}

func serve(t *testing.T, conn net.Conn, server int, requests chan<- asked) {
	t.Helper()
	read := bufio.NewReader(conn)
	for {
		var size [4]byte
		if _, err := io.ReadFull(read, size[:]); err != nil {
			_ = conn.Close()
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(size[:]))
		a := asked{server: server, conn: conn}
		if _, err := io.ReadFull(read, payload); err != nil || json.Unmarshal(payload, &a) != nil {
			t.Errorf("server %d read %q, %v", server, payload, err)
			return
		}
		requests <- a
	}
}

// write sends texts as messages.
func write(t *testing.T, conn net.Conn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
			t.Fatal(err)
		}
	}
}

// send asks for a text, and returns where its outcome will come.
func send(t *testing.T, c *alternative.Client, text string) <-chan ask.Outcome {
	t.Helper()
	ended := make(chan ask.Outcome, 2) // so that a second end shows and does not block
	r := &workload.Request{Model: "m", Input: broker.Input{Text: text}, MaxTokens: 7}
	if err := c.Ask(r, time.Now(), func(o *ask.Outcome) { ended <- *o }); err != nil {
		t.Fatal(err)
	}
	return ended
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	c, requests := fakes(t, 1)
	first, second, third := send(t, c, "one"), send(t, c, "two"), send(t, c, "three")
	var got []asked
	for range 3 {
		got = append(got, <-requests)
	}
	if got[1].Input != "two" || got[1].MaxTokens != 7 {
		t.Errorf("the server was asked %+v", got[1])
	}
	// Out of order, a message in two pieces.
	text := `{"id":2,"error":"no such letter"}`
	write(t, got[0].conn, `{"id":1,"text":"TWO","input_tokens":3,"output_tokens":2}`, text, `{"id":0,"label":"a"}`)
	if o := <-second; o.Code != "" || o.Input != 3 || o.Output != 2 || o.First.IsZero() || o.End.Before(o.Sent) || o.Request.Input.Text != "two" {
		t.Errorf("a text: %+v", o)
	}
	if o := <-third; o.Code != alternative.CodeRefused {
		t.Errorf("an error: code %q, want %q", o.Code, alternative.CodeRefused)
	}
	if o := <-first; o.Code != "" || !o.First.IsZero() {
		t.Errorf("a label: %+v", o)
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d under way, want none", n)
	}
}

func TestFewestUnderWay(t *testing.T) {
	t.Parallel()
	c, requests := fakes(t, 2)
	var by [2][]asked
	var ends []<-chan ask.Outcome
	for range 4 {
		ends = append(ends, send(t, c, "x"))
		a := <-requests
		by[a.server] = append(by[a.server], a)
	}
	if len(by[0]) != 2 || len(by[1]) != 2 {
		t.Fatalf("%d and %d of 4 requests", len(by[0]), len(by[1]))
	}
	for _, a := range by[1] { // server 1 is free again, 0 is not
		write(t, a.conn, `{"id":`+string(rune('0'+a.ID))+`,"text":""}`)
		<-ends[a.ID]
	}
	for range 2 {
		send(t, c, "y")
		if a := <-requests; a.server != 1 {
			t.Error("a request went to the server with more under way")
		}
	}
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	for name, message := range map[string][]byte{"ended": nil, "a message too long": {0xff, 0xff, 0xff, 0xff}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, requests := fakes(t, 1)
			ended := send(t, c, "x")
			a := <-requests
			if len(message) == 0 {
				_ = a.conn.Close()
			} else if _, err := a.conn.Write(message); err != nil {
				t.Fatal(err)
			}
			if o := <-ended; o.Code != alternative.CodeLost {
				t.Errorf("code %q, want %q", o.Code, alternative.CodeLost)
			}
			if err := c.Ask(&workload.Request{}, time.Now(), nil); err == nil {
				t.Error("a request was sent after the connections had ended")
			}
		})
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	c, requests := fakes(t, 1)
	ended := send(t, c, "x")
	a := <-requests
	c.Expire(time.Now())
	if n := c.InFlight(); n != 1 {
		t.Fatalf("%d under way before the patience has run out, want 1", n)
	}
	c.Expire(time.Now().Add(time.Minute))
	if o := <-ended; o.Code != ask.CodeTimeout {
		t.Errorf("code %q, want %q", o.Code, ask.CodeTimeout)
	}
	// What comes after all is counted and does no harm, as is what is no answer.
	write(t, a.conn, `{"id":0,"text":"late"}`, `{"id":9,"text":"whose"}`, `[`)
	ended = send(t, c, "y")
	write(t, (<-requests).conn, `{"id":1,"text":"in time"}`)
	if o := <-ended; o.Code != "" {
		t.Errorf("the request after it: code %q", o.Code)
	}
	if n := c.Counts(); n.Duplicates != 1 || n.Malformed != 2 {
		t.Errorf("%+v, want 1 duplicate and 2 malformed", n)
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	c, requests := fakes(t, 1)
	go func() {
		for _, text := range []string{`{"id":0,"text":"a text"}`, `{"id":1,"label":"a label"}`, `{"id":2,"error":"because"}`} {
			conn := (<-requests).conn
			_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
		}
	}()
	for _, want := range []string{"a text", "a label"} {
		if got, err := c.Value(t.Context(), &workload.Request{}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := c.Value(t.Context(), &workload.Request{}); err == nil || err.Error() != "refused: because" {
		t.Errorf("error %v, want refused: because", err)
	}
}

func TestIDsAreNotSent(t *testing.T) {
	t.Parallel()
	c, _ := fakes(t, 1)
	if err := c.Ask(&workload.Request{Input: broker.Input{IsIDs: true}}, time.Now(), nil); err == nil {
		t.Error("token ids were sent")
	}
}
