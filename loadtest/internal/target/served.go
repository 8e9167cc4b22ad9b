package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// answerWait is how long workers may take to say what they serve.
const answerWait = 500 * time.Millisecond

// Served returns the names of the models that workers on nc serve, in order. It
// returns none when nobody answers, as with permissions that do not allow to ask.
func Served(ctx context.Context, nc *nats.Conn, prefix string) ([]string, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask for models: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // it ends with the connection at the latest
	if err := nc.PublishRequest("$SRV.INFO", inbox, nil); err != nil {
		return nil, fmt.Errorf("ask for models: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	names := map[string]bool{}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case err == nil:
			for _, name := range endpoints(m.Data, prefix+".rt.") {
				names[name] = true
			}
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return slices.Sorted(maps.Keys(names)), nil
		default:
			return nil, fmt.Errorf("ask for models: %w", err)
		}
	}
}

// endpoints returns the models of a service's description.
func endpoints(payload []byte, prefix string) []string {
	var service struct {
		Endpoints []struct {
			Subject string `json:"subject"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(payload, &service) != nil {
		return nil // somebody else's service
	}
	var out []string
	for _, e := range service.Endpoints {
		if name, ok := strings.CutPrefix(e.Subject, prefix); ok && broker.ValidModel(name) {
			out = append(out, name)
		}
	}
	return out
}

// lookWait bounds a trial of what a model reads.
const lookWait = 5 * time.Second

// Look tries what a model reads, and whether it generates. A kind that is given
// is taken as it is, and so are inputs.
func Look(ctx context.Context, c *broker.Client, model string, kind workload.Kind, inputs []string) (*workload.Maker, error) {
	if len(inputs) > 0 {
		labels, err := tryInput(ctx, c, model, broker.Input{Text: inputs[0]})
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", model, err)
		}
		return &workload.Maker{Inputs: inputs, Labels: labels}, nil
	}
	kinds := []workload.Kind{kind}
	if kind == "" {
		if kind = bundled(model); kind != "" {
			kinds = []workload.Kind{kind}
		} else {
			kinds = []workload.Kind{workload.Text, workload.Tree, workload.IDs}
		}
	}
	var last error
	for _, k := range kinds {
		vocabularies := []int{0}
		if k == workload.IDs {
			vocabularies = []int{30_000, 4096, 1024, 256, 64, 8, 2}
		}
		for _, v := range vocabularies {
			labels, err := tryInput(ctx, c, model, sample(k, v))
			if err == nil {
				lengths, err := workload.ParseLaw(usual(k))
				return &workload.Maker{Kind: k, Vocabulary: v, Labels: labels, Lengths: lengths}, err
			}
			if last = err; !errors.Is(err, &broker.Error{Code: broker.CodeBadRequest}) {
				return nil, fmt.Errorf("model %s: %w", model, err)
			}
		}
	}
	return nil, fmt.Errorf("model %s: it takes none of the inputs that can be made, give it some with --input-file FILE: %w", model, last)
}

// bundled is what the bundled models read.
func bundled(model string) workload.Kind {
	switch model {
	case "g2p-en":
		return workload.Words
	case "listops":
		return workload.Tree
	}
	return ""
}

func sample(k workload.Kind, vocabulary int) broker.Input {
	switch k {
	case workload.Tree:
		return broker.Input{Text: "( ( ( [MAX 2 ) 9 ) ] )"}
	case workload.IDs:
		return broker.Input{IDs: []int32{int32(vocabulary - 1)}, IsIDs: true}
	}
	return broker.Input{Text: "cellular"}
}

// usual is the law of lengths of a kind of input unless another is asked for.
func usual(k workload.Kind) string {
	switch k {
	case workload.Words:
		return "uniform:1:3"
	case workload.Text:
		return "lognormal:60:0.65:330"
	case workload.Tree:
		return "uniform:2:20"
	}
	return "wmt"
}

// tryInput sends a request, and reports whether the model answers with a label.
func tryInput(ctx context.Context, c *broker.Client, model string, in broker.Input) (labels bool, err error) {
	one := 1
	err = try(ctx, c, model, broker.RequestOptions{Input: in, Params: broker.Params{MaxTokens: &one}})
	if errors.Is(err, &broker.Error{Code: broker.CodeUnsupportedParameter}) {
		return true, try(ctx, c, model, broker.RequestOptions{Input: in})
	}
	return false, err
}

func try(ctx context.Context, c *broker.Client, model string, o broker.RequestOptions) error {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	o.Mode = broker.ModeFinal
	s, err := c.Request(ctx, model, o)
	if err != nil {
		return err
	}
	_, err = s.Final()
	return err
}
