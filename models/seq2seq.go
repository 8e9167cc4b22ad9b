package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/internal/snapshot"
	"github.com/cellmq/cellmq/models/seq2seq"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// seq2seqFamily is a model that writes a target sequence for a source.
type seq2seqFamily struct {
	*seq2seq.Model
	source, target tokenizer.Tokenizer
	segmented      bool // split text at white space
	limits         Limits
}

// loadSeq2Seq fills in the parts of m that its family decides.
func (m *Model) loadSeq2Seq(src *source, c config, text []byte) error {
	var sc seq2seq.Config
	if err := json.Unmarshal(text, &sc); err != nil {
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	sc = sc.WithDefaults()
	if err := sc.Validate(); err != nil {
		return &ConfigError{File: configFile, Err: err}
	}
	f := &seq2seqFamily{limits: Limits{MaxInputTokens: sc.MaxSourceLength, MaxTokens: sc.MaxTargetLength}}
	var err error
	if f.source, err = newTokenizer(src.fsys, "source_tokenizer", cmp.Or(c.SourceTokenizer, c.Tokenizer), sc.SourceVocab); err != nil {
		return err
	}
	if f.target, err = newTokenizer(src.fsys, "target_tokenizer", cmp.Or(c.TargetTokenizer, c.Tokenizer), sc.TargetVocab); err != nil {
		return err
	}
	switch {
	case c.Segment == "":
	case c.Segment != segmentWhitespace:
		return &ConfigError{File: configFile, Field: "segment", Err: fmt.Errorf("%.32q, %s or nothing wanted", c.Segment, segmentWhitespace)}
	case cmp.Or(c.SourceTokenizer, c.Tokenizer).Type != tokenizer.Characters:
		return &ConfigError{File: configFile, Field: "segment", Err: fmt.Errorf("only %s can be segmented", tokenizer.Characters)}
	default:
		f.segmented = true
		f.limits.MaxTokens *= sc.MaxSourceLength
	}
	tensors, err := src.tensors()
	if err != nil {
		return err
	}
	if f.Model, err = seq2seq.New(m.name, sc, tensors); err != nil {
		return &ConfigError{File: weightsFile, Err: err}
	}
	m.family, m.target, m.limits = f, f.target, f.limits
	return nil
}

func (f *seq2seqFamily) unfold(in Input, p Params) (*Request, error) {
	d := decoding{maxTokens: f.limits.MaxTokens, defaultTokens: f.limits.MaxTokens, maxBeam: f.Config().MaxBeamWidth, target: f.target}
	o, err := d.options(p)
	if err != nil {
		return nil, err
	}
	segments, err := f.encode(in)
	if err != nil {
		return nil, err
	}
	if len(segments) > 1 && o.NBest > 1 {
		return nil, inputErrorf(UnsupportedParameter, "n_best", "%d, at most 1 for an input of %d segments", o.NBest, len(segments))
	}
	tokens := 0
	for _, s := range segments {
		tokens += len(s)
	}
	o.MaxTokens = min(o.MaxTokens, len(segments)*f.Config().MaxTargetLength)
	g := f.Graph(segments, o)
	return &Request{
		Graph: g, InputTokens: tokens, MaxTokens: o.MaxTokens, stops: o.Stops,
		sign: func(dst []byte) []byte {
			dst = snapshot.AppendInt(dst, len(segments))
			for _, s := range segments {
				dst = signTokens(dst, s)
			}
			return signOptions(dst, o, p.Stop)
		},
		outcome: func() Outcome {
			return Outcome{LogProb: g.LogProb(), Cut: g.Cut(), Alternatives: alternatives(g.Alternatives())}
		},
	}, nil
}

// encode returns the segments of an input as token ids, none of them empty.
func (f *seq2seqFamily) encode(in Input) ([][]int32, error) {
	switch {
	case in.IDs != nil:
		ids, err := checkIDs(in.IDs, f.Config().SourceVocab, f.limits.MaxInputTokens)
		return [][]int32{ids}, err
	case f.segmented:
		return f.encodeSegments(strings.Fields(in.Text), in.Text)
	case in.Text == "":
		return f.encodeSegments(nil, "")
	default:
		return f.encodeSegments([]string{in.Text}, in.Text)
	}
}

// encodeSegments encodes the segments of text.
func (f *seq2seqFamily) encodeSegments(segments []string, text string) ([][]int32, error) {
	tokens := 0
	for _, s := range segments {
		tokens += f.source.Len(s)
	}
	if err := checkTokens(tokens, f.limits.MaxInputTokens); err != nil {
		return nil, err
	}
	encoded := make([][]int32, 0, len(segments))
	rest := text
	for _, s := range segments {
		at := strings.Index(rest, s)
		ids, err := f.source.Encode(s)
		if err != nil {
			before := utf8.RuneCountInString(text[:len(text)-len(rest)+at])
			return nil, inputErrorf(BadRequest, fieldInput, "%s", located(err, before))
		}
		rest = rest[at+len(s):]
		encoded = append(encoded, ids)
	}
	return encoded, nil
}

// located says where in the whole text a fault lies that a segment's
// tokenizer met.
func located(err error, before int) string {
	if e, ok := errors.AsType[*tokenizer.EncodeError](err); ok {
		moved := *e
		moved.Position += before
		return moved.Error()
	}
	return err.Error()
}
