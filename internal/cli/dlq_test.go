package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/zoo"
)

func TestDLQUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"help", []string{"dlq", "--help"}, 0, "cellmq dlq replay 7 --steps", ""},
		{"nothing", []string{"dlq"}, 0, "Available Commands", ""},
		{"in the list", []string{"--help"}, 0, "dead letters", ""},
		{"help of list", []string{"dlq", "list", "--help"}, 0, "cellmq dlq list g2p-en --from 100", ""},
		{"help of show", []string{"dlq", "show", "--help"}, 0, "cellmq dlq show 7 --input", ""},
		{"help of replay", []string{"dlq", "replay", "--help"}, 0, "3 when the model is another one", ""},
		{"unknown", []string{"dlq", "resubmit"}, 2, "", `unknown command "resubmit"`},
		{"no number", []string{"dlq", "show"}, 2, "", "arg"},
		{"bad number", []string{"dlq", "show", "0"}, 2, "", `"0" is no number of a dead letter`},
		{"bad number to replay", []string{"dlq", "replay", "x"}, 2, "", `"x" is no number of a dead letter`},
		{"bad model", []string{"dlq", "list", "a.b"}, 2, "", `"a.b" is no name of a model`},
		{"bad limit", []string{"dlq", "list", "--limit", "-1"}, 2, "", "--limit -1"},
		{"no server", []string{"dlq", "list", "--nats-url", "nats://me:secret@127.0.0.1:1"}, 1, "", "--nats-url"},
	} {
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

// overflowing writes a model of bytes into a directory and returns it with the
// directory's. After a it writes b, and after b its output is no number.
func overflowing(t *testing.T) (string, *models.Model) {
	t.Helper()
	const vocab, n, strong = 256, 2, 20
	zeros := func(name string, shape ...int) safetensors.Values {
		size := 1
		for _, s := range shape {
			size *= s
		}
		return safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]float32, size)}
	}
	embed, out := zeros("embed.weight", vocab, n), zeros("out.weight", vocab, n)
	input, bias, outBias := zeros("rnn.weight_ih_l0", 4*n, n), zeros("rnn.bias_ih_l0", 4*n), zeros("out.bias", vocab)
	for i := range n { // a unit for each byte
		embed.Data[int("ab"[i])*n+i] = 1
		input.Data[(2*n+i)*n+i] = strong
		bias.Data[i], bias.Data[n+i], bias.Data[3*n+i] = strong, -strong, strong
	}
	out.Data['b'*n] = strong
	out.Data['c'*n+1], outBias.Data['c'] = -3e38, -3e38 // their sum is not finite
	var file bytes.Buffer
	err := safetensors.Write(&file, []safetensors.Values{embed, out, input, bias, outBias, zeros("rnn.weight_hh_l0", 4*n, n), zeros("rnn.bias_hh_l0", 4*n)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`{"model_type":"rnn_lm","cell":"lstm","num_layers":1,"vocab_size":%d,"embedding_size":%d,"hidden_size":%d,"tokenizer":{"type":"bytes"}}`, vocab, n, n)
	for name, content := range map[string][]byte{"config.json": []byte(config), "model.safetensors": file.Bytes()} {
		if err := os.MkdirAll(filepath.Join(dir, "overflowing"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "overflowing", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := models.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, loaded[0]
}

// deadLetters is a server with letters and the directory of the first one's
// model.
type deadLetters struct {
	url, modelDir string
}

const payloadOfHello = `{"input": "hello", "meta": {"k": "v"}}`

// newDeadLetters writes letters as a worker does when a model overflows, when it
// fails, when attempts died, and one of a model with other files and with other
// weights.
func newDeadLetters(t *testing.T) deadLetters {
	t.Helper()
	dir, broken := overflowing(t)
	sound, err := zoo.Load("g2p-en")
	if err != nil {
		t.Fatal(err)
	}
	server := brokertest.Server(t)
	conn := brokertest.Connect(t, server, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"g2p-en", "overflowing"}); err != nil {
		t.Fatal(err)
	}
	for i, l := range []*broker.Letter{
		{Model: "overflowing", Digest: broken.Digest(), Version: broken.Version(), Code: broker.CodeNumericalError, Payload: []byte("a"), Tokens: []int32{'b'}},
		{Model: "g2p-en", Digest: sound.Digest(), Code: broker.CodeInternal, Payload: []byte("\x81\xa5input\xc4\x04\x05\x00\x00\x00")},
		{Model: "g2p-en", Digest: sound.Digest(), Code: broker.CodeAttemptsExhausted, Payload: []byte(payloadOfHello), Attempts: 5, Excused: 2},
		{Model: "g2p-en", Digest: "0123456789abcdef", Code: broker.CodeInternal, Payload: []byte("hello\x1b[2J")},
		{Model: "g2p-en", Digest: sound.Digest(), Code: broker.CodeInternal, Payload: make([]byte, 1<<20)},
		{Model: "g2p-en", Digest: sound.Digest(), Version: sound.Version() + "+int8", Code: broker.CodeInternal, Payload: []byte("hello")},
	} {
		l.Sequence, l.Published, l.Client, l.Worker = uint64(100+i), time.Unix(1_700_000_000, 0), "me", "w1"
		l.ID, l.Subject = fmt.Sprintf("request%04d", i), "infer.req."+l.Model+".std.me"
		l.Header = nats.Header{"Nats-Msg-Id": {l.ID}, "X-Evil": {"\x1b[31mred"}}
		l.Attempts = max(l.Attempts, 1)
		frame := &broker.Frame{Type: broker.FrameError, ID: l.ID, Error: broker.NewError(l.Code, "it \x1b[31mfailed")}
		if l.Terminal, err = broker.AppendFrame(nil, broker.JSON, frame); err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	return deadLetters{url: server.URL(), modelDir: dir}
}

// run runs a command about the letters.
func (d deadLetters) run(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, "", append([]string{"dlq", args[0], "--nats-url", d.url}, args[1:]...)...)
	if strings.Contains(r.out+r.err, "\x1b") {
		t.Errorf("an escape sequence gets to the terminal: %q", r.out+r.err)
	}
	return r
}

// decoded reads a line of JSON.
func decoded[T any](t *testing.T, line string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return v
}

func TestDLQ(t *testing.T) {
	t.Parallel()
	d := newDeadLetters(t)
	t.Run("list", func(t *testing.T) { testDLQList(t, d) })
	t.Run("show", func(t *testing.T) { testDLQShow(t, d) })
	t.Run("replay", func(t *testing.T) { testDLQReplay(t, d) })
}

func testDLQList(t *testing.T, d deadLetters) {
	t.Helper()
	r := d.run(t, "list")
	r.want(t, 0, "NUMBER", "")
	row := regexp.MustCompile(`(?m)^3 +102 +2023-11-14T22:13:20Z +g2p-en +me +request0002 +attempts_exhausted +5$`)
	if !row.MatchString(r.out) || strings.Count(r.out, "\n") != 7 || r.err != "" {
		t.Errorf("stdout:\n%s\nstderr: %s", r.out, r.err)
	}
	type letter struct {
		Number, Sequence  uint64
		ID, Code, Model   string
		Attempts, Excused int
		Truncated         []string
	}
	for _, tc := range []struct {
		args []string
		want []uint64
	}{
		{nil, []uint64{1, 2, 3, 4, 5, 6}},
		{[]string{"g2p-en", "--from", "3", "--limit", "2"}, []uint64{3, 4}},
		{[]string{"overflowing"}, []uint64{1}},
		{[]string{"other"}, nil},
	} {
		r := d.run(t, append([]string{"list", "--json"}, tc.args...)...)
		r.want(t, 0, "", "")
		var got []uint64
		for line := range strings.Lines(r.out) {
			l := decoded[letter](t, line)
			got = append(got, l.Number)
			if l.Number == 3 && (l.Sequence != 102 || l.ID != "request0002" || l.Code != "attempts_exhausted" || l.Attempts != 5 || l.Excused != 2) {
				t.Errorf("%+v", l)
			}
			if l.Number == 5 && !slices.Contains(l.Truncated, "payload") {
				t.Errorf("%+v", l)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.args, got, tc.want)
		}
	}
	d.run(t, "list", "other").want(t, 0, "", "no dead letters")
}

func testDLQShow(t *testing.T, d deadLetters) {
	t.Helper()
	r := d.run(t, "show", "3")
	r.want(t, 0, "attempts   5, of which excused 2", "")
	r.want(t, 0, `header     X-Evil: "\x1b[31mred"`, "")
	r.want(t, 0, "error attempts_exhausted", "")
	if strings.Contains(r.out, "hello") {
		t.Errorf("shows the input without being asked:\n%s", r.out)
	}
	d.run(t, "show", "1").want(t, 0, "tokens     98\n", "")
	d.run(t, "show", "1", "--input").want(t, 0, `input      "a"`, "")
	d.run(t, "show", "2", "--input").want(t, 0, "input      ids 5\n", "")
	d.run(t, "show", "4", "--input").want(t, 0, `input      "hello\x1b[2J"`, "")
	d.run(t, "show", "5", "--input").want(t, 0, "input      cannot be read", "")
	d.run(t, "show", "7").want(t, 1, "", "no dead letter 7")
	d.run(t, "show", "6").want(t, 0, "version    1+int8\n", "")
	d.run(t, "show", "3").want(t, 0, "version    \"\"\n", "") // as letters without one are shown
	d.run(t, "show", "6", "--json").want(t, 0, `"version":"1+int8"`, "")

	type details struct {
		Header   map[string][]string
		Terminal struct{ Type, Code string }
		Tokens   []int32
		Input    string
		Payload  []byte
	}
	r = d.run(t, "show", "3", "--json", "--input")
	got := decoded[details](t, r.out)
	if got.Input != "hello" || string(got.Payload) != payloadOfHello || got.Terminal.Code != "attempts_exhausted" || got.Tokens == nil ||
		got.Header["Nats-Msg-Id"][0] != "request0002" {
		t.Errorf("%+v", got)
	}
	if got := decoded[details](t, d.run(t, "show", "3", "--json").out); got.Input != "" || got.Payload != nil {
		t.Errorf("shows the input without being asked: %+v", got)
	}
}

func testDLQReplay(t *testing.T, d deadLetters) {
	t.Helper()
	for _, tc := range []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"numerical_error", []string{"1", "--model-dir", d.modelDir}, 0, "result    equal", ""},
		{"single-stepped", []string{"1", "--model-dir", d.modelDir, "--steps"}, 0, "step 1  ", ""},
		{"no such model", []string{"1"}, 1, "", "overflowing is neither bundled"},
		{"internal that runs now", []string{"2"}, 1, "recorded error", ""},
		{"attempts_exhausted that runs now", []string{"3"}, 1, `final stop: "HH EH1 L OW0", 4 tokens`, ""},
		{"other files", []string{"4"}, 3, "", "--force"},
		{"other files all the same", []string{"4", "--force"}, 1, "result", "not the model of the letter"},
		{"no payload", []string{"5"}, 1, "", "did not fit"},
		{"other weights", []string{"6"}, 3, "", `version 1, the letter's has "1+int8"`},
		{"where weights are chosen", []string{"6"}, 3, "", "CELLMQ_WEIGHTS"},
		{"other weights all the same", []string{"6", "--force"}, 1, "result", "not the model of the letter"},
		{"no letter", []string{"7"}, 1, "", "no dead letter 7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d.run(t, append([]string{"replay"}, tc.args...)...).want(t, tc.code, tc.out, tc.err)
		})
	}
	t.Run("JSON", func(t *testing.T) {
		type report struct {
			Step        int
			Equal       *bool
			Steps       int
			Tokens      []int32
			Differences []struct{ Field, Recorded, Replayed string }
			Text        string `json:"replayed_text"`
		}
		r := d.run(t, "replay", "3", "--json", "--steps")
		r.want(t, 1, "", "")
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		last := decoded[report](t, lines[len(lines)-1])
		if last.Equal == nil || *last.Equal || last.Steps != len(lines)-1 || len(last.Tokens) != 4 || last.Text != "HH EH1 L OW0" ||
			len(last.Differences) != 1 || last.Differences[0].Field != "type" || last.Differences[0].Recorded != "error" {
			t.Errorf("%+v", last)
		}
		if first := decoded[report](t, lines[0]); first.Step != 1 || first.Equal != nil {
			t.Errorf("%+v", first)
		}
		r = d.run(t, "replay", "1", "--json", "--model-dir", d.modelDir)
		r.want(t, 0, `"equal":true,"differences":[]`, "")
	})
}
