package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/internal/cli"
	"github.com/cellmq/cellmq/models/zoo"
)

// serveFamilies runs a worker with the bundled models until the test ends and
// returns its server's URL. Their golden outputs are left out, which take
// longer to check than all that a test does.
func serveFamilies(t *testing.T) (url string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range zoo.Names() {
		copyModel(t, filepath.Join(dir, name), name)
	}
	server := brokertest.Server(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan string, 1)
	go func() {
		var out, errs bytes.Buffer
		cli.Main(ctx, []string{
			"worker", "--nats-url", server.URL(), "--admin", "127.0.0.1:0", "--model-dir", dir, "--log-level", "warn",
			"--executors", "2", "--threads", "2", "--grace", "0s",
		}, strings.NewReader(""), &out, &errs)
		ended <- errs.String()
	}()
	t.Cleanup(func() {
		stop()
		if errs := <-ended; errs != "" {
			t.Errorf("the worker says %s", errs)
		}
	})
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	timeout := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := nc.Request("$SRV.PING.cellmq", nil, time.Second)
		if err == nil {
			return server.URL()
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("no worker: %v", err)
		}
	}
}

// copyModel writes a bundled model without golden outputs to a directory.
func copyModel(t *testing.T, dir, name string) {
	t.Helper()
	files, err := zoo.FS(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "golden.jsonl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestRequestFamilies prints what each family gives.
func TestRequestFamilies(t *testing.T) {
	t.Parallel()
	url := serveFamilies(t)
	cases := []struct {
		name string
		args []string
		out  string // a pattern
	}{
		{"label", []string{"langid", "Tous les êtres humains"}, `^fr  (1\.0000|0\.\d{4})\n$`},
		{"label of each layer", []string{"langid", "Tous les êtres humains", "--ramps"}, `^([a-z]{2}  (1\.0000|0\.\d{4})\n){5}fr  (1\.0000|0\.\d{4})\n$`},
		{"tree", []string{"listops", "( ( ( [MAX 2 ) 9 ) ] )"}, `^9  (1\.0000|0\.\d{4})\n$`},
		{"language model", []string{"kjv-lm", "esti", "--max-tokens", "16"}, `^m the son of Amm\n$`},
		{"stop", []string{"kjv-lm", "esti", "--max-tokens", "16", "--stop", "x", "--stop", " of"}, `^m the son\n$`},
		{"search", []string{"g2p-en", "serendipity", "--beam", "4"}, `^S EH2 R AH0 N D IH1 P IH0 T IY0\n$`},
		{"best of a search", []string{"g2p-en", "serendipity", "--beam", "4", "--n-best", "2"}, `^-\d+\.\d{4}  S EH2 R [^\n]+\n-\d+\.\d{4}  S EH2 R [^\n]+\n$`},
		{"log-probabilities", []string{"g2p-en", "a", "--logprobs", "2", "--json"}, `"logprobs":\[\[\[\d+,-\d[^]]+\],\[\d+,-\d[^]]+\]\]\]`},
		{"provisional frames", []string{"g2p-en", strings.Repeat("onomatopoeia ", 12), "--beam", "4", "--json"}, `"type":"token".*"provisional":true,"revision":\d+}`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, "", append([]string{"request", "--nats-url", url}, tc.args...)...)
			r.want(t, 0, "", "")
			if !regexp.MustCompile(tc.out).MatchString(r.out) {
				t.Errorf("stdout %q, want %s", r.out, tc.out)
			}
		})
	}
	t.Run("parameter of another family", func(t *testing.T) {
		t.Parallel()
		run(t, "", "request", "--nats-url", url, "langid", "hello", "--beam", "2").want(t, 1, "", "unsupported_parameter: beam_width")
	})
	t.Run("ramps of another family", func(t *testing.T) {
		t.Parallel()
		run(t, "", "request", "--nats-url", url, "listops", "2", "--ramps").want(t, 1, "", "unsupported_parameter: ramps")
	})
	t.Run("sampling", func(t *testing.T) {
		t.Parallel()
		checkSampling(t, url)
	})
}

// checkSampling wants a seed to decide, and every flag to be sent.
func checkSampling(t *testing.T, url string) {
	t.Helper()
	sample := func(args ...string) string {
		t.Helper()
		r := run(t, "", append([]string{"request", "--nats-url", url, "kjv-lm", "In", "--max-tokens", "12"}, args...)...)
		r.want(t, 0, "\n", "")
		return r.out
	}
	seeded := sample("--temperature", "2", "--seed", "7")
	if again := sample("--temperature", "2", "--seed", "7"); again != seeded {
		t.Errorf("one seed gives %q and %q", seeded, again)
	}
	if other := sample("--temperature", "2", "--seed", "8"); other == seeded {
		t.Errorf("two seeds give %q", other)
	}
	// One token to draw from is the most probable one.
	greedy := sample()
	if got := sample("--temperature", "2", "--seed", "7", "--top-k", "1"); got != greedy {
		t.Errorf("with top-k 1 %q, greedy %q", got, greedy)
	}
	if got := sample("--temperature", "2", "--seed", "7", "--top-p", "0.001"); got != greedy {
		t.Errorf("with top-p 0.001 %q, greedy %q", got, greedy)
	}
}
