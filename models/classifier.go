package models

import (
	"encoding/json"

	"github.com/cellmq/cellmq/models/classifier"
	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/internal/snapshot"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// classifierFamily is a model that says to which class a text belongs.
type classifierFamily struct {
	*classifier.Model
	tokenizer tokenizer.Tokenizer
}

// loadClassifier fills in the parts of m that its family decides.
func (m *Model) loadClassifier(src *source, c config, text []byte) error {
	var cc classifier.Config
	if err := json.Unmarshal(text, &cc); err != nil {
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	cc = cc.WithDefaults()
	if err := cc.Validate(); err != nil {
		return &ConfigError{File: configFile, Err: err}
	}
	if err := checkLabels(cc.Labels); err != nil {
		return err
	}
	f := &classifierFamily{}
	var err error
	if f.tokenizer, err = newTokenizer(src.fsys, "tokenizer", c.Tokenizer, cc.VocabSize); err != nil {
		return err
	}
	tensors, err := src.tensors()
	if err != nil {
		return err
	}
	if f.Model, err = classifier.New(m.name, cc, tensors); err != nil {
		return &ConfigError{File: weightsFile, Err: err}
	}
	m.family, m.limits = f, Limits{MaxInputTokens: cc.MaxInputLength}
	return nil
}

func (f *classifierFamily) unfold(in Input, p Params) (*Request, error) {
	if err := refuseTokenParams(p); err != nil {
		return nil, err
	}
	c := f.Config()
	if p.Ramps && c.Ramps == 0 {
		return nil, unsupported(fieldRamps, "ramps")
	}
	tokens, err := encodeWhole(f.tokenizer, in, c.VocabSize, c.MaxInputLength)
	if err != nil {
		return nil, err
	}
	g := f.Graph(tokens, p.Ramps)
	return &Request{
		Graph: g, InputTokens: len(tokens),
		sign:    func(dst []byte) []byte { return snapshot.AppendBool(signTokens(dst, tokens), p.Ramps) },
		outcome: func() Outcome { return classify(c.Labels, g.Logits()) },
	}, nil
}
