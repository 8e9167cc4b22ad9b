package models

import (
	"encoding/json"

	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/lm"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// FamilyLM is the model_type of recurrent language models.
const FamilyLM = "rnn_lm"

// defaultContinuation is the max_tokens of a request to a language model that
// does not say.
const defaultContinuation = 128

// lmFamily is a model that continues a text.
type lmFamily struct {
	*lm.Model
	tokenizer tokenizer.Tokenizer
}

// loadLM fills in the parts of m that its family decides.
func (m *Model) loadLM(src *source, c config, text []byte) error {
	var lc lm.Config
	if err := json.Unmarshal(text, &lc); err != nil {
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	lc = lc.WithDefaults()
	if err := lc.Validate(); err != nil {
		return &ConfigError{File: configFile, Err: err}
	}
	f := &lmFamily{}
	var err error
	if f.tokenizer, err = newTokenizer(src.fsys, "tokenizer", c.Tokenizer, lc.VocabSize); err != nil {
		return err
	}
	tensors, err := src.tensors()
	if err != nil {
		return err
	}
	if f.Model, err = lm.New(m.name, lc, tensors); err != nil {
		return &ConfigError{File: weightsFile, Err: err}
	}
	m.family, m.target = f, f.tokenizer
	m.limits = Limits{MaxInputTokens: lc.MaxInputLength, MaxTokens: lc.MaxOutputLength}
	return nil
}

func (f *lmFamily) unfold(in Input, p Params) (*Request, error) {
	c := f.Config()
	d := decoding{
		maxTokens: c.MaxOutputLength, defaultTokens: min(defaultContinuation, c.MaxOutputLength),
		maxBeam: c.MaxBeamWidth, target: f.tokenizer,
	}
	o, err := d.options(p)
	if err != nil {
		return nil, err
	}
	input, err := f.encode(in)
	if err != nil {
		return nil, err
	}
	g := f.Graph(input, o)
	return &Request{
		Graph: g, InputTokens: len(input), MaxTokens: o.MaxTokens, stops: o.Stops,
		sign: func(dst []byte) []byte { return signOptions(signTokens(dst, input), o, p.Stop) },
		outcome: func() Outcome {
			return Outcome{LogProb: g.LogProb(), Cut: g.Cut(), Alternatives: alternatives(g.Alternatives())}
		},
	}, nil
}

func (f *lmFamily) encode(in Input) ([]int32, error) {
	return encodeWhole(f.tokenizer, in, f.Config().VocabSize, f.Config().MaxInputLength)
}

// UnfoldScore unfolds an input into a request that emits no tokens and whose
// outcome is the log-probability of the input itself: the sum over its second
// and later tokens, each given all before it. Only language models score;
// whatever is wrong is an [*InputError].
func (m *Model) UnfoldScore(in Input) (*Request, error) {
	f, ok := m.family.(*lmFamily)
	if !ok {
		return nil, unsupported(fieldInput, "the scoring of an input")
	}
	if in.IDs != nil && in.Text != "" {
		return nil, inputErrorf(BadRequest, fieldInput, "both text and ids")
	}
	input, err := f.encode(in)
	if err != nil {
		return nil, err
	}
	g := f.ScoreGraph(input)
	return &Request{
		Model: m, Graph: g, InputTokens: len(input),
		outcome: func() Outcome { return Outcome{LogProb: g.LogProb()} },
	}, nil
}
