package models

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/tokenizer"
	"github.com/cellmq/cellmq/models/tree"
)

// treeFamily is a model that says to which class a tree belongs.
type treeFamily struct {
	*tree.Model
	tokenizer tokenizer.Tokenizer
}

// loadTree fills in the parts of m that its family decides.
func (m *Model) loadTree(src *source, c config, text []byte) error {
	var tc tree.Config
	if err := json.Unmarshal(text, &tc); err != nil {
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	tc = tc.WithDefaults()
	if err := tc.Validate(); err != nil {
		return &ConfigError{File: configFile, Err: err}
	}
	if err := checkLabels(tc.Labels); err != nil {
		return err
	}
	reader := cmp.Or(c.Tokenizer, &tokenizer.Config{Type: tokenizer.Tree, Vocab: "vocab.json"})
	if reader.Type != tokenizer.Tree {
		return &ConfigError{File: configFile, Field: "tokenizer", Err: fmt.Errorf("type %.32q, %s wanted", reader.Type, tokenizer.Tree)}
	}
	f := &treeFamily{}
	var err error
	if f.tokenizer, err = newTokenizer(src.fsys, "tokenizer", reader, tc.VocabSize); err != nil {
		return err
	}
	tensors, err := src.tensors()
	if err != nil {
		return err
	}
	if f.Model, err = tree.New(m.name, tc, tensors); err != nil {
		return &ConfigError{File: weightsFile, Err: err}
	}
	m.family, m.limits = f, Limits{MaxInputTokens: tc.MaxNodes}
	return nil
}

func (f *treeFamily) unfold(in Input, p Params) (*Request, error) {
	if err := refuseTokenParams(p); err != nil {
		return nil, err
	}
	c := f.Config()
	switch {
	case p.Ramps:
		return nil, unsupported(fieldRamps, "ramps")
	case in.IDs != nil:
		return nil, inputErrorf(BadRequest, fieldInput, "token ids, a tree as text wanted")
	}
	switch n := f.tokenizer.Len(in.Text); {
	case n == 0:
		return nil, inputErrorf(BadRequest, fieldInput, "empty")
	case n > c.MaxNodes:
		return nil, inputErrorf(InputTooLong, fieldInput, "a tree of %d nodes, at most %d wanted", n, c.MaxNodes)
	}
	nodes, err := f.tokenizer.Encode(in.Text)
	if err != nil {
		return nil, inputErrorf(BadRequest, fieldInput, "%s", err)
	}
	g := f.Graph(nodes)
	return &Request{
		Graph: g, InputTokens: len(nodes),
		outcome: func() Outcome { return classify(c.Labels, g.Logits()) },
	}, nil
}
