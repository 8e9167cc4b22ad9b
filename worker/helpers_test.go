package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// started is a running worker.
type started struct {
	*worker.Worker
	stop func() // ends its context: it drains
	done chan error
}

// start runs a worker on server, or where change says, until the test ends or stop is called. Change
// may be nil.
func start(tb testing.TB, server *broker.Server, deps worker.Deps, change func(*worker.Config)) *started {
	tb.Helper()
	cfg := worker.DefaultConfig()
	cfg.AdminAddress = "127.0.0.1:0"
	if server != nil {
		cfg.NatsURL = server.URL()
	}
	cfg.Grace, cfg.Profile = patience, 0
	cfg.CacheDir = tb.TempDir()
	cfg.Models = []string{"g2p-en"}
	if change != nil {
		change(&cfg)
	}
	if deps.Models == nil && raced {
		deps.Models = []*models.Model{g2p(tb)}
	}
	if deps.Backend == nil && slices.ContainsFunc(deps.Models, func(m *models.Model) bool { return m.Name() == "endless" }) {
		deps.Backend = newPaced()
	}
	if deps.Log == nil && testing.Verbose() {
		deps.Log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	w, err := worker.New(cfg, deps)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &started{Worker: w, stop: stop, done: make(chan error, 1)}
	go func() { s.done <- w.Run(ctx) }()
	tb.Cleanup(func() {
		w.HandBack()
		stop()
		s.wait(tb)
	})
	select {
	case <-w.Ready():
	case err := <-s.done:
		s.done <- nil
		tb.Fatalf("worker did not start: %v", err)
	case <-time.After(patience):
		tb.Fatal("worker is not ready")
	}
	return s
}

// wait waits until the worker has ended. It may be called more than once.
func (s *started) wait(tb testing.TB) {
	tb.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			tb.Errorf("worker ended with %v", err)
		}
		s.done <- nil
	case <-time.After(patience):
		tb.Error("worker does not end")
	}
}

// connect returns a plain NATS connection.
func connect(tb testing.TB, server *broker.Server) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// subscribe returns a subscription that the server knows of.
func subscribe(tb testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	tb.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return sub
}

// publish sends a request with a reply subject; header pairs may follow.
func publish(tb testing.TB, nc *nats.Conn, subject, reply string, payload []byte, header ...string) {
	tb.Helper()
	m := &nats.Msg{Subject: subject, Reply: reply, Data: payload, Header: nats.Header{}}
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	if err := nc.PublishMsg(m); err != nil {
		tb.Fatal(err)
	}
}

// nextFrame waits for a frame; PubAcks, which come on the same subject, are
// skipped.
func nextFrame(tb testing.TB, sub *nats.Subscription) broker.Frame {
	tb.Helper()
	for {
		m, err := sub.NextMsg(patience)
		if err != nil {
			tb.Fatalf("no frame: %v", err)
		}
		if isPubAck(m.Data) {
			continue
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			tb.Fatalf("frame %q: %v", m.Data, err)
		}
		return f
	}
}

func isPubAck(payload []byte) bool {
	var ack struct {
		Stream string          `json:"stream"`
		Error  json.RawMessage `json:"error"`
		Type   string          `json:"type"`
	}
	return json.Unmarshal(payload, &ack) == nil && ack.Stream != "" && ack.Type == ""
}

// untilTerminal reads the frames of one request up to its terminal one and
// checks what holds for every token stream.
func untilTerminal(tb testing.TB, sub *nats.Subscription) []broker.Frame {
	tb.Helper()
	var frames []broker.Frame
	for {
		f := nextFrame(tb, sub)
		frames = append(frames, f)
		if f.Type.Terminal() {
			checkFrames(tb, frames)
			return frames
		}
	}
}

// checkFrames wants the frames of one lease: contiguous seq and index, the
// tokens those of the final, provisional ones before them, one terminal frame.
func checkFrames(tb testing.TB, frames []broker.Frame) {
	tb.Helper()
	var text string
	var tokens []int32
	revision := 0
	for i, f := range frames {
		if f.Seq != uint64(i) || f.ID != frames[0].ID || f.Epoch != frames[0].Epoch || f.Attempt != frames[0].Attempt {
			tb.Errorf("frame %d has seq %d, id %s, lease %d/%d", i, f.Seq, f.ID, f.Epoch, f.Attempt)
		}
		switch f.Type {
		case broker.FrameToken:
			if !utf8.ValidString(f.Text) {
				tb.Errorf("frame %d has text %q", i, f.Text)
			}
			if f.Provisional {
				if f.Revision <= revision || len(tokens) > 0 {
					tb.Errorf("frame %d is revision %d after %d and %d tokens", i, f.Revision, revision, len(tokens))
				}
				revision = f.Revision
				continue
			}
			if f.Index != len(tokens) || len(f.Tokens) == 0 && f.Text == "" {
				tb.Errorf("frame %d has %d tokens at index %d, want index %d", i, len(f.Tokens), f.Index, len(tokens))
			}
			text += f.Text
			tokens = append(tokens, f.Tokens...)
		case broker.FrameFinal:
			if len(tokens) > 0 && (f.Text != text || fmt.Sprint(f.Tokens) != fmt.Sprint(tokens)) {
				tb.Errorf("final %q %v, streamed %q %v", f.Text, f.Tokens, text, tokens)
			}
		}
		if f.Type.Terminal() != (i == len(frames)-1) {
			tb.Errorf("frame %d of %d is a %s", i, len(frames), f.Type)
		}
	}
}

// types lists the types of frames, runs of the same type as one.
func types(frames []broker.Frame) (out []broker.FrameType) {
	for _, f := range frames {
		if len(out) == 0 || out[len(out)-1] != f.Type {
			out = append(out, f.Type)
		}
	}
	return out
}

// eventually waits until condition holds.
func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			tb.Fatalf("never: %s", what)
		}
	}
}

// g2p loads the bundled model. Under the race detector it has no golden
// outputs: checking them would take longer than all the rest.
func g2p(tb testing.TB) *models.Model {
	tb.Helper()
	if raced {
		return silent(tb, "g2p-en")
	}
	m, err := zoo.Load("g2p-en")
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// silent loads a bundled model without its golden outputs.
func silent(tb testing.TB, name string) *models.Model {
	tb.Helper()
	files, err := zoo.FS(name)
	if err != nil {
		tb.Fatal(err)
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		tb.Fatal(err)
	}
	copied := fstest.MapFS{}
	for _, e := range entries {
		if e.Name() == "golden.jsonl" {
			continue
		}
		b, err := fs.ReadFile(files, e.Name())
		if err != nil {
			tb.Fatal(err)
		}
		copied[e.Name()] = &fstest.MapFile{Data: b}
	}
	m, err := models.Load(copied, name)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// endless returns a model whose output never ends by itself before thousands
// of tokens, each of which takes a while: an untrained GRU that cannot choose
// its end token. Its text form is token ids.
func endless(tb testing.TB, name string) *models.Model {
	tb.Helper()
	hidden := 256
	if raced {
		hidden = 64
	}
	return randomModel(tb, name, hidden, nil)
}

// randomModel returns an untrained GRU; spoil, if not nil, changes the bias of
// its output.
func randomModel(tb testing.TB, name string, hidden int, spoil func(bias []float32)) *models.Model {
	tb.Helper()
	const vocab, embedding = 19, 8
	random := rand.New(rand.NewPCG(1, 2))
	tensor := func(name string, shape ...int) safetensors.Values {
		n := 1
		for _, s := range shape {
			n *= s
		}
		v := safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]float32, n)}
		for i := range v.Data {
			v.Data[i] = float32(random.NormFloat64()) * 0.2
		}
		return v
	}
	var tensors []safetensors.Values
	for _, side := range []string{"encoder", "decoder"} {
		tensors = append(tensors,
			tensor(side+".weight_ih_l0", 3*hidden, embedding), tensor(side+".weight_hh_l0", 3*hidden, hidden),
			tensor(side+".bias_ih_l0", 3*hidden), tensor(side+".bias_hh_l0", 3*hidden))
	}
	out := tensor("out.bias", vocab)
	out.Data[2] = -1e4 // the end token
	if spoil != nil {
		spoil(out.Data)
	}
	tensors = append(tensors, out, tensor("out.weight", vocab, hidden),
		tensor("src_embed.weight", vocab, embedding), tensor("tgt_embed.weight", vocab, embedding),
		tensor("bridge_h.weight", hidden, hidden), tensor("bridge_h.bias", hidden))
	config := fmt.Sprintf(`{"model_type":"rnn_seq2seq","cell":"gru","attention":"none","num_layers":1,
		"embedding_size":%d,"encoder_hidden_size":%d,"decoder_hidden_size":%d,"source_vocab_size":%d,"target_vocab_size":%d,
		"pad_token_id":0,"bos_token_id":1,"eos_token_id":2,"max_target_length":16384,"tokenizer":"ids"}`,
		embedding, hidden, hidden, vocab, vocab)
	return assemble(tb, name, config, tensors)
}

// speller returns a language model of bytes that writes a text over and over;
// none of the text's bytes may occur twice. Each byte sets a unit of its hidden
// state, and each unit the next byte's logit.
func speller(tb testing.TB, name, text string) *models.Model {
	tb.Helper()
	config, tensors := spellerParts(text, "1")
	return assemble(tb, name, config, tensors)
}

func spellerParts(text, version string) (config string, tensors []safetensors.Values) {
	const vocab, strong = 256, 20
	n := len(text)
	zeros := func(name string, shape ...int) safetensors.Values {
		size := 1
		for _, s := range shape {
			size *= s
		}
		return safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]float32, size)}
	}
	embed, out := zeros("embed.weight", vocab, n), zeros("out.weight", vocab, n)
	input, bias := zeros("rnn.weight_ih_l0", 4*n, n), zeros("rnn.bias_ih_l0", 4*n)
	for i := range n {
		embed.Data[int(text[i])*n+i] = 1
		out.Data[int(text[(i+1)%n])*n+i] = strong
		input.Data[(2*n+i)*n+i] = strong // the cell's candidate
		bias.Data[i], bias.Data[n+i], bias.Data[3*n+i] = strong, -strong, strong
	}
	config = fmt.Sprintf(`{"model_type":"rnn_lm","cell":"lstm","num_layers":1,"vocab_size":%d,"embedding_size":%d,"hidden_size":%d,
		"tokenizer":{"type":"bytes"},"version":%q}`, vocab, n, n, version)
	return config, []safetensors.Values{
		embed, out, input, bias, zeros("out.bias", vocab), zeros("rnn.weight_hh_l0", 4*n, n), zeros("rnn.bias_hh_l0", 4*n),
	}
}

// assemble loads a model from its configuration and tensors.
func assemble(tb testing.TB, name, config string, tensors []safetensors.Values) *models.Model {
	tb.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		tb.Fatal(err)
	}
	m, err := models.Load(fstest.MapFS{
		"config.json":       {Data: []byte(config)},
		"model.safetensors": {Data: file.Bytes()},
	}, name)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// paced is a backend whose steps take a moment at least, however fast the
// machine is: a test can find a request running before its output has ended.
type paced struct{ cellrt.Backend }

// pace is the least time of a step.
const pace = 100 * time.Microsecond

func newPaced() paced { return paced{cpu.New(cpu.Config{})} }

func (p paced) Load(program *cellrt.Program, slots int) (cellrt.Executable, error) {
	e, err := p.Backend.Load(program, slots)
	if err != nil {
		return nil, err
	}
	states, ok := e.(cellrt.States)
	if !ok {
		return nil, errors.New("the backend has no checkpoints")
	}
	return pacedExecutable{e, states}, nil
}

type pacedExecutable struct {
	cellrt.Executable
	cellrt.States
}

func (e pacedExecutable) NewRunner() cellrt.Runner { return pacedRunner{e.Executable.NewRunner()} }

type pacedRunner struct{ cellrt.Runner }

func (r pacedRunner) Run(c *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	<-time.After(pace)
	return r.Runner.Run(c, rows, out)
}

func newServer(tb testing.TB) *broker.Server {
	tb.Helper()
	return brokertest.Server(tb)
}

// brokerConn returns a connection as a worker has it.
func brokerConn(tb testing.TB, server *broker.Server) *broker.Conn {
	tb.Helper()
	return brokertest.Connect(tb, server, broker.Config{})
}
