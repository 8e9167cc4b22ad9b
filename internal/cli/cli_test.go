package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/internal/cli"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"help", []string{"--help"}, 0, "cellmq request g2p-en", ""},
		{"nothing", nil, 0, "Available Commands", ""},
		{"version", []string{"version"}, 0, "cellmq 0.", ""},
		{"help of request", []string{"request", "--help"}, 0, "--payloads", ""},
		{"help of worker", []string{"worker", "--help"}, 0, "127.0.0.1:9464", ""},
		{"unknown command", []string{"serve"}, 2, "", `unknown command "serve"`},
		{"unknown flag", []string{"demo", "--loud"}, 2, "", "--loud"},
		{"no model", []string{"request"}, 2, "", "arg"},
		{"bad priority", []string{"request", "m", "x", "--priority", "urgent"}, 2, "", "high, std or low"},
		{"bad concurrency", []string{"request", "m", "x", "--concurrency", "0"}, 2, "", "between 1 and"},
		{"bad duration", []string{"request", "m", "x", "--deadline", "soon"}, 2, "", "--deadline"},
		{"negative deadline", []string{"request", "m", "x", "--deadline", "-1s"}, 2, "", "--deadline -1s"},
		{"id for many", []string{"request", "m", "x", "y", "--id", "0123456789"}, 2, "", "exactly one INPUT"},
		{"models of others", []string{"request", "m", "x", "--model-dir", "."}, 2, "", "--embedded"},
		{"two servers", []string{"request", "m", "x", "--embedded", "--nats-url", "nats://h"}, 2, "", "exclude"},
		{"max tokens of payloads", []string{"request", "m", "x", "--payloads", "--max-tokens", "3"}, 2, "", "exclude"},
		{"beam of payloads", []string{"request", "m", "x", "--payloads", "--beam", "3"}, 2, "", "--beam and --payloads exclude"},
		{"ramps of payloads", []string{"request", "m", "x", "--payloads", "--ramps"}, 2, "", "--ramps and --payloads exclude"},
		{"log-probabilities as text", []string{"request", "m", "x", "--logprobs", "3"}, 2, "", "--logprobs needs --json"},
		{"bad seed", []string{"request", "m", "x", "--seed", "-1"}, 2, "", "--seed"},
		{"demo of no model", []string{"demo", "--model", "m"}, 2, "", "one of g2p-en, kjv-lm"},
		{"bad threads", []string{"worker", "--threads", "0"}, 2, "", "CELLMQ_THREADS is 0"},
		{"cancel without client", []string{"cancel", "0123456789"}, 2, "", "--client"},
		{"bad setting", []string{"worker", "--slots", "0"}, 2, "", "CELLMQ_SLOTS is 0"},
		{"no model directory", []string{"worker", "--port", "-1", "--admin", "", "--model-dir", "/nonexistent"}, 1, "", "/nonexistent"},
		{"no server", []string{"request", "m", "x", "--nats-url", "nats://me:secret@127.0.0.1:1"}, 1, "", "start a worker with 'cellmq worker'"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, "", tc.args...)
			r.want(t, tc.code, tc.out, tc.err)
			if strings.Contains(r.err, "secret") {
				t.Errorf("shows a password: %s", r.err)
			}
		})
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	r := run(t, "", "demo", "hello", "cellular batching", "7")
	r.want(t, 1, "HH EH1 L OW0  (4 tokens, stop", "")
	for _, want := range []string{
		"cellular batching  S EH1 L Y AH0 L ER0 | B AE1 CH IH0 NG  (12 tokens, stop",
		"7                  failed: bad_request",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	// Each frame adds a line; how many tokens share a frame is a matter of speed.
	if n := strings.Count(r.out, "  cellular batching  S"); n < 2 {
		t.Errorf("%d lines of a request with 12 tokens in\n%s", n, r.out)
	}
	totals := regexp.MustCompile(`(?m)^requests 3   tokens 16   tokens/s \d+   steps \d+   rows per step: mean \d+\.\d, max \d+   padding 0$`)
	if !totals.MatchString(r.out) {
		t.Errorf("no totals in\n%s", r.out)
	}
}

// TestDemoByItself shows models of four families side by side.
func TestDemoByItself(t *testing.T) {
	t.Parallel()
	args, want := []string{"demo"}, []string{
		"12 requests to g2p-en, kjv-lm, langid, listops,",
		"g2p-en  serendipity (beam 4)  S EH2 R AH0 N D IH1 P IH0 T IY0  (11 tokens, stop, ",
		"kjv-lm  In the beginning  of the LORD, and the sons of Jerusalem, and the  (48 tokens, length, ",
		"langid  Tous les êtres humains  fr  ", "listops  ( ( ( [MAX 2 ) 9 ) ] )  9  ",
		"\nrequests 12  tokens 147  ",
	}
	if raced { // where starting four models takes long
		args, want = []string{"demo", "--model", "listops"}, []string{"2 requests to listops,", "  ( ( ( [MAX 2 ) 9 ) ] )  9  "}
	}
	r := run(t, "", args...)
	r.out = regexp.MustCompile(" {2,}").ReplaceAllString(r.out, "  ")
	for _, w := range want {
		r.want(t, 0, w, "")
	}
	if r.err != "" {
		t.Errorf("stderr: %s", r.err)
	}
}

// TestWeightsFromEnvironment chooses weight types for workers that serve one
// command.
func TestWeightsFromEnvironment(t *testing.T) {
	for _, tc := range []struct {
		weights, isa string
		args         []string
		code         int
		out, err     string
	}{
		{"int4", "", []string{"demo"}, 2, "", `CELLMQ_WEIGHTS has "int4"`},
		{"", "sse", []string{"demo"}, 2, "", `CELLMQ_ISA is "sse"`},
		{"no-such=int8", "", []string{"demo", "--model", "listops"}, 1, "", "CELLMQ_WEIGHTS names no-such"},
		{"g2p-en=int8,bf16", "", []string{"demo", "--model", "listops"}, 0, "2 requests to listops", ""},
		{"g2p-en=int8,listops=bf16", "purego", []string{"request", "--embedded", "listops", "( ( ( [MAX 2 ) 9 ) ] )"}, 0, "9", ""},
	} {
		t.Run(tc.weights+" "+tc.isa, func(t *testing.T) {
			t.Setenv("CELLMQ_WEIGHTS", tc.weights)
			t.Setenv("CELLMQ_ISA", tc.isa)
			run(t, "", tc.args...).want(t, tc.code, tc.out, tc.err)
		})
	}
}

func TestRequestEmbedded(t *testing.T) {
	t.Parallel()
	r := run(t, "", "request", "--embedded", "g2p-en", "cellular batching")
	r.want(t, 0, "S EH1 L Y AH0 L ER0 | B AE1 CH IH0 NG\n", "")
	if strings.Count(r.out, "\n") != 1 || r.err != "" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
}

func TestRequestLinesInOrder(t *testing.T) {
	t.Parallel()
	words := []string{"serendipity", "a", "hello", "b\xff", "onomatopoeia", "queue"}
	var lines, outputs []string
	rounds := 20
	if raced {
		rounds = 3
	}
	for range rounds {
		lines = append(lines, words...)
		outputs = append(outputs, "S EH2 R AH0 N D IH1 P IH0 T IY0", "EY1", "HH EH1 L OW0", "",
			"AA2 N AH0 M AH0 T AH0 P OW1 IY0 AH0", "K Y UW1")
	}
	r := run(t, strings.Join(lines, "\n")+"\n", "request", "--embedded", "g2p-en", "--concurrency", "9")
	r.want(t, 1, "", "request 4: bad_request")
	if want := strings.Join(outputs, "\n") + "\n"; r.out != want {
		t.Errorf("got:\n%s\nwant:\n%s", r.out, want)
	}
	if n := strings.Count(r.err, "bad_request"); n != rounds {
		t.Errorf("%d failures reported", n)
	}
}

func TestRequestJSON(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"durable", "rt"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			args := []string{"request", "--embedded", "--json", "g2p-en", "hello", "--client", "me", "--id", "0123456789"}
			if path == "rt" {
				args = append(args, "--rt")
			}
			r := run(t, "", args...)
			r.want(t, 0, "", "")
			var types []string
			for line := range strings.Lines(r.out) {
				var f struct{ Type, ID, Text string }
				if err := json.Unmarshal([]byte(line), &f); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if f.ID != "0123456789" {
					t.Errorf("id %q", f.ID)
				}
				types = append(types, f.Type)
				if f.Type == "final" && f.Text != "HH EH1 L OW0" {
					t.Errorf("final %s", line)
				}
			}
			if len(types) < 3 || types[0] != "accepted" || types[len(types)-1] != "final" {
				t.Errorf("frames %v", types)
			}
		})
	}
}

func TestRequestPayloads(t *testing.T) {
	t.Parallel()
	payloads := `{"input": "hello", "max_tokens": 2}` + "\n" + `{"input": "hello", "beam_width": 2, "temperature": 0.5}` + "\n" + `{"input": [4]}` + "\n"
	r := run(t, payloads, "request", "--embedded", "--payloads", "g2p-en")
	r.want(t, 1, "HH EH1\n\n", "request 2: unsupported_parameter")
	if lines := strings.Split(r.out, "\n"); len(lines) != 4 || lines[2] == "" {
		t.Errorf("stdout %q", r.out)
	}
}

func TestRequestMaxTokens(t *testing.T) {
	t.Parallel()
	run(t, "", "request", "--embedded", "g2p-en", "hello", "--max-tokens", "3").want(t, 0, "HH EH1 L\n", "")
	run(t, "", "request", "--embedded", "g2p-en", "hello", "--max-tokens", "-3").want(t, 1, "", "bad_request")
	run(t, "", "request", "--embedded", "g2p-en", "hello", "--model-version", "77").want(t, 1, "", "unknown_version")
}

func TestRequestUnknownModel(t *testing.T) {
	t.Parallel()
	run(t, "", "request", "--embedded", "none", "hello").want(t, 1, "", "none is neither bundled nor in a model directory")
	// A server on which no worker has ever been.
	server := brokertest.Server(t)
	run(t, "", "request", "--nats-url", server.URL(), "g2p-en", "hello").want(t, 1, "", "start one with 'cellmq worker'")
	run(t, "", "request", "--nats-url", server.URL(), "g2p-en", "hello", "--rt").want(t, 1, "", "start one with 'cellmq worker'")
}

func TestRequestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := cli.Main(ctx, []string{"request", "--embedded", "g2p-en", "hello"}, strings.NewReader(""), &out, &errs)
	if code != 130 {
		t.Errorf("exit code %d, stderr %s", code, &errs)
	}
}

// brokenPipe refuses to be written to.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"request", "--embedded", "g2p-en", "hello", "a"}, {"demo", "hello"}, {"version"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			var errs bytes.Buffer
			code := cli.Main(t.Context(), args, strings.NewReader(""), brokenPipe{}, &errs)
			if code != 1 || !strings.Contains(errs.String(), "broken pipe") {
				t.Errorf("exit code %d, stderr %s", code, &errs)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("ok\n")) })
	mux.HandleFunc("/bad", func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "draining", http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	run(t, "", "health", server.URL+"/good").want(t, 0, "ok\n", "")
	run(t, "", "health", server.URL+"/bad").want(t, 1, "draining", "503")
	run(t, "", "health", "http://127.0.0.1:1/").want(t, 1, "", "refused")
	run(t, "", "health", "://").want(t, 2, "", "")
}

// TestInterruptedWhileReading interrupts a request whose input does not end, as
// somebody does who forgot to give one on a terminal.
func TestInterruptedWhileReading(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	in, keep := io.Pipe()
	t.Cleanup(func() { _ = keep.Close() }) // lets the reader go
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(keep, "queued\n") // when it was read, the command reads
		cancel()
	}()
	var out, errs bytes.Buffer
	code := cli.Main(ctx, []string{"request", "--nats-url", server.URL(), "g2p-en"}, in, &out, &errs)
	if code != 130 {
		t.Errorf("exit code %d, stderr %s", code, &errs)
	}
}

// TestInterruptedWhileConnecting meets a server that says nothing.
func TestInterruptedWhileConnecting(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := mute.Accept(); err == nil {
			cancel()
			<-ctx.Done()
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	var out, errs bytes.Buffer
	code := cli.Main(ctx, []string{"request", "--nats-url", "nats://" + mute.Addr().String(), "g2p-en", "hello"}, strings.NewReader(""), &out, &errs)
	if code != 130 {
		t.Errorf("exit code %d, stderr %s", code, &errs)
	}
}
