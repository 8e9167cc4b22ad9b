package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/worker"
)

// maxConcurrency bounds --concurrency.
const maxConcurrency = 4096

// requestOptions are the flags of request.
type requestOptions struct {
	model string

	natsURL   string
	modelDirs []string
	embedded  bool

	realtime bool
	priority string
	client   string
	id       string
	version  string
	deadline time.Duration
	decoding decodingFlags

	json        bool
	payloads    bool
	timeout     time.Duration
	concurrency int
}

func newRequest(s streams) *cobra.Command {
	o := &requestOptions{}
	cmd := &cobra.Command{
		Use:   "request MODEL [INPUT...]",
		Short: "Send requests and print what comes back as it comes",
		Long: `request publishes each input as one request and prints its output, on a terminal
while the tokens arrive, elsewhere when it is whole. Without an INPUT it reads one
from each line of stdin. However many there are, the outputs are in the order of
the inputs, one per line; an output that has line breaks of its own takes several,
which --json keeps apart.

The output of a model that classifies is the label and its probability, or with
--ramps those of each layer, from the first to the last, a line for each. That of
a search is printed when it has ended; on a terminal it shows while it changes.

The server is --nats-url, else CELLMQ_NATS_URL, else nats://127.0.0.1:4222.`,
		Example: `  cellmq request g2p-en "cellular batching"
  cellmq request g2p-en serendipity --beam 4 --n-best 3
  cellmq request kjv-lm "In the beginning" --temperature 0.8 --seed 1 --stop "."
  cellmq request langid "Todos los seres humanos nacen libres"
  cellmq request langid "Todos los seres humanos" --ramps
  cellmq request g2p-en --json neural
  cellmq request g2p-en < words.txt > phonemes.txt
  echo '{"input": "neural", "max_tokens": 3}' | cellmq request g2p-en --payloads
  cellmq request --embedded g2p-en hello`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			o.model = positional[0]
			if err := o.check(positional[1:]); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return sendAll(ctx, o, positional[1:], s)
		},
	}
	o.bind(cmd.Flags())
	manual.Note(cmd, manual.Notes{Environment: embeddedEnvironment, Exit: requestExit})
	cmd.ValidArgsFunction = first(servedModels)
	completeFlag(cmd, "model-dir", directories)
	completeFlag(cmd, "priority", fixed(string(broker.High), string(broker.Std), string(broker.Low)))
	return cmd
}

func (o *requestOptions) bind(set *pflag.FlagSet) {
	set.StringVar(&o.natsURL, "nats-url", "", "NATS server to connect to (default $CELLMQ_NATS_URL or nats://127.0.0.1:4222)")
	set.BoolVar(&o.embedded, "embedded", false, "run a broker and a worker of its own for this one call")
	set.StringArrayVar(&o.modelDirs, "model-dir", nil, "with --embedded: directory whose sub-directories are models; repeatable")
	set.BoolVar(&o.realtime, "rt", false, "take the realtime path: lowest latency, nothing queued or kept")
	set.StringVar(&o.priority, "priority", string(broker.Std), "queue of a durable request: high, std or low")
	set.StringVar(&o.client, "client", "", "name of the client, for quotas and cancel (default a random one)")
	set.StringVar(&o.id, "id", "", "id of the request, for cancel (default a random one)")
	set.StringVar(&o.version, "model-version", "", "version of the model that must serve it")
	set.DurationVar(&o.deadline, "deadline", 0, "whole budget of a request; it ends with what it has by then (default none)")
	o.decoding.bind(set)
	set.BoolVar(&o.json, "json", false, "print every frame as a line of JSON")
	set.BoolVar(&o.payloads, "payloads", false, "inputs are whole request payloads in JSON")
	set.DurationVar(&o.timeout, "timeout", 0, "longest time to wait for a request's end (default no limit)")
	set.IntVar(&o.concurrency, "concurrency", 64, "requests under way at the same time")
}

// check refuses what makes no sense before anything is connected.
func (o *requestOptions) check(inputs []string) error {
	switch {
	case o.priority != string(broker.High) && o.priority != string(broker.Std) && o.priority != string(broker.Low):
		return usagef("--priority %q: it must be high, std or low", o.priority)
	case o.concurrency < 1 || o.concurrency > maxConcurrency:
		return usagef("--concurrency %d: it must be between 1 and %d", o.concurrency, maxConcurrency)
	case o.id != "" && len(inputs) != 1:
		return usagef("--id names one request: give exactly one INPUT")
	case len(o.modelDirs) > 0 && !o.embedded:
		return usagef("--model-dir needs --embedded: a running worker has its own models")
	case o.embedded && o.natsURL != "":
		return usagef("--embedded and --nats-url exclude each other")
	case o.payloads && o.decoding.first() != "":
		return usagef("--%s and --payloads exclude each other: a payload has its own parameters", o.decoding.first())
	case o.decoding.given("logprobs") && !o.json:
		return usagef("--logprobs needs --json: log-probabilities are in the frames")
	case o.deadline < 0:
		return usagef("--deadline %v: it must be positive", o.deadline)
	case o.timeout < 0:
		return usagef("--timeout %v: it must be positive", o.timeout)
	}
	return nil
}

// options returns how one input is sent.
func (o *requestOptions) options(input string) broker.RequestOptions {
	r := broker.RequestOptions{
		Encoding: broker.MsgPack, ID: o.id, Priority: broker.Priority(o.priority), Version: o.version, Realtime: o.realtime,
	}
	if o.deadline > 0 {
		r.Deadline = time.Now().Add(o.deadline)
	}
	if o.payloads {
		r.Payload, r.ContentType, r.Encoding = []byte(input), "application/json", broker.JSON
		return r
	}
	r.Input = broker.Input{Text: input}
	o.decoding.set(&r.Params)
	return r
}

// sendAll connects, sends every input and prints what comes back.
func sendAll(ctx context.Context, o *requestOptions, inputs []string, s streams) (err error) {
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return usageError{err}
	}
	nc, closeConn, err := o.connect(ctx, cfg, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeConn()) }()
	client, err := broker.NewClient(nc, broker.ClientConfig{Name: o.client, Prefix: cfg.SubjectPrefix})
	if err != nil {
		return usageError{err}
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return newDispatch(o, client, s).run(ctx, inputs)
}

// connect reaches the server, or starts one of its own.
func (o *requestOptions) connect(ctx context.Context, cfg worker.Config, s streams) (*nats.Conn, func() error, error) {
	if o.embedded {
		cfg.ModelDirs = append(cfg.ModelDirs, o.modelDirs...)
		if len(cfg.Models) == 0 && broker.ValidModel(o.model) {
			cfg.Models = []string{o.model} // nobody asks for another
		}
		l, err := startLocal(ctx, cfg, s)
		if err != nil {
			return nil, nil, err
		}
		return l.nc, l.close, nil
	}
	if o.natsURL != "" {
		cfg.NatsURL = o.natsURL
	}
	nc, err := dial(ctx, cfg, o.client)
	if err != nil {
		return nil, nil, err
	}
	return nc, func() error { nc.Close(); return nil }, nil
}

// explain adds to a request's error what the user can do about it.
func explain(err error) string {
	switch {
	case errors.Is(err, &broker.Error{Code: broker.CodeUnknownModel}):
		return err.Error() + " ('cellmq top --once' shows what workers serve; each reads its model directories when it starts; start one with 'cellmq worker')"
	case errors.Is(err, context.DeadlineExceeded):
		return "no final frame within --timeout (is a worker running? start one with 'cellmq worker')"
	default:
		return err.Error()
	}
}

// failure is the error of a call in which some requests failed.
func failure(failed, total int) error {
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d requests", errReported, failed, total)
}
