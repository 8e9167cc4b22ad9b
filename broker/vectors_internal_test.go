package broker

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nuid"
)

// vector is a line of testdata/tracker.jsonl: frames as they arrive, and those
// that a reader gets.
type vector struct {
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	Have struct {
		Tokens int `json:"tokens"`
		Text   int `json:"text"` // bytes
	} `json:"have"`
	In []struct {
		Frame  json.RawMessage `json:"frame"`
		Stored bool            `json:"stored"`
	} `json:"in"`
	Out []yielded `json:"out"`
}

// yielded is what counts of a frame that a reader gets.
type yielded struct {
	Type        FrameType `json:"type"`
	Text        string    `json:"text"`
	Index       int       `json:"index"`
	Tokens      []int32   `json:"tokens"`
	Provisional bool      `json:"provisional"`
}

func yieldedOf(f *Frame) yielded {
	y := yielded{Type: f.Type, Text: f.Text, Index: f.Index, Provisional: f.Provisional}
	if len(f.Tokens) > 0 {
		y.Tokens = f.Tokens
	}
	return y
}

// testStream is a stream without a connection.
func testStream(o *RequestOptions, queue int) *Stream {
	o.ID = "request1"
	s := newStream(&Client{cfg: ClientConfig{QueueFrames: queue}, streams: map[string]*Stream{}, ids: idSource{nuid: nuid.New()}}, "m", o)
	s.resume.armed = true // there is nobody to ask
	return s
}

// drain returns what is queued for the reader.
func (s *Stream) drain() []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue
	s.queue = nil
	return q
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	file, err := os.Open("testdata/tracker.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var all []vector
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			tb.Fatalf("line %d: %v", len(all)+1, err)
		}
		all = append(all, v)
	}
	return all
}

// TestVectors goes through the cases that the protocol gives to every client.
func TestVectors(t *testing.T) {
	t.Parallel()
	all := vectors(t)
	if len(all) < 25 {
		t.Fatalf("%d cases", len(all))
	}
	for _, v := range all {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			s := testStream(&RequestOptions{Mode: v.Mode}, 1<<10)
			s.track.haveTokens, s.track.haveText = v.Have.Tokens, v.Have.Text
			var got []yielded
			for _, in := range v.In {
				f, err := DecodeFrame(in.Frame)
				if err != nil {
					t.Fatal(err)
				}
				s.push(f, in.Stored)
				for _, f := range s.drain() {
					got = append(got, yieldedOf(&f))
				}
			}
			for i := range v.Out {
				if len(v.Out[i].Tokens) == 0 {
					v.Out[i].Tokens = nil
				}
			}
			if diff := cmp.Diff(v.Out, got); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
		})
	}
}
