package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/cellmq/cellmq/internal/modeldir"
	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// The files of a model's directory.
const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	goldenFile  = "golden.jsonl"
)

// Bounds of a model's files in bytes and of its texts.
const (
	maxConfigBytes  = 1 << 20
	maxVocabBytes   = 32 << 20
	maxGoldenBytes  = 16 << 20
	maxWeightsBytes = modeldir.MaxFileBytes
	maxTextBytes    = 64 // of a version or task
	maxNameBytes    = 64
)

// The families, by model_type.
const (
	// FamilySeq2Seq: recurrent sequence-to-sequence models.
	FamilySeq2Seq = "rnn_seq2seq"
	// FamilyClassifier: recurrent classifiers of texts.
	FamilyClassifier = "rnn_classifier"
	// FamilyTree: classifiers of binary trees.
	FamilyTree = "tree_lstm"
)

const segmentWhitespace = "whitespace"

// config is what the configurations of all families have.
type config struct {
	ModelType string `json:"model_type"`
	Task      string `json:"task"`
	Version   string `json:"version"`
	// Weights names the weight type that the author chose; empty or null is f32.
	Weights string `json:"weights"`
	// Tokenizer is for both sides where a side does not name its own.
	Tokenizer       *tokenizer.Config `json:"tokenizer"`
	SourceTokenizer *tokenizer.Config `json:"source_tokenizer"`
	TargetTokenizer *tokenizer.Config `json:"target_tokenizer"`
	// Segment is "whitespace" when each word of a text is encoded and decoded
	// on its own, empty otherwise.
	Segment string `json:"segment"`
}

// LoadDir loads every sub-directory of dir that has a config.json, in the
// order of their names, but hidden ones. A model is named like its directory.
// The error joins those of the first models that fail to load and says how many
// more there are.
func LoadDir(dir string) ([]*Model, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read model directory: %w", err)
	}
	var (
		models []*Model
		errs   brief.List
	)
	for _, e := range entries {
		if modeldir.Hidden(e.Name()) {
			continue
		}
		at := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(filepath.Join(at, configFile)); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // something else lies here
		}
		m, err := LoadFrom(at, e.Name())
		if err != nil {
			errs.Add(err)
			continue
		}
		models = append(models, m)
	}
	return models, errs.Err()
}

// LoadFrom is [Load] for a directory on disk, nothing outside which is read: a link
// that leads elsewhere is an error.
func LoadFrom(dir, name string) (m *Model, err error) {
	d, err := modeldir.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("load model %.80q: %w", name, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return Load(d, name)
}

// Load reads the model in fsys, whose root is the model's directory, and
// checks all of it. A name is 1 to 64 of a-z, 0-9 and the hyphen.
//
// Weights that are infinite or not a number are loaded: they end the requests that
// meet them ([cellrt.ErrNumerical]) and no other. [LoadStrict] refuses them.
func Load(fsys fs.FS, name string) (*Model, error) { return open(&source{fsys: fsys}, name) }

// LoadStrict is [Load] for a model that is about to be verified, recorded or
// stored: it refuses weights that are not finite, with the tensor and the index.
func LoadStrict(fsys fs.FS, name string) (*Model, error) {
	return open(&source{fsys: fsys, strict: true}, name)
}

func open(src *source, name string) (*Model, error) {
	if !validName(name) {
		return nil, fmt.Errorf("model name %.80q, 1 to %d of a-z, 0-9 and - wanted", name, maxNameBytes)
	}
	m, err := load(src, name)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return m, nil
}

// load loads a model and counts it as one of its directory's, where that is
// mapped.
func load(src *source, name string) (*Model, error) {
	dir, mapped := src.fsys.(*Dir)
	if mapped {
		if err := dir.use(); err != nil {
			return nil, err
		}
	}
	m, err := read(src, name)
	if mapped && err != nil {
		dir.drop()
	}
	if err != nil {
		return nil, err
	}
	m.held = &held{dir: dir}
	return m, nil
}

func validName(name string) bool {
	outside := func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}
	return name != "" && len(name) <= maxNameBytes && !strings.ContainsFunc(name, outside)
}

// read reads and checks a model's files.
func read(src *source, name string) (*Model, error) {
	var c config
	text, err := readFile(src.fsys, configFile, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, unreadableConfig(err)
	}
	if len(c.Version) > maxTextBytes || len(c.Task) > maxTextBytes {
		return nil, &ConfigError{File: configFile, Field: "version, task", Err: fmt.Errorf("at most %d bytes wanted", maxTextBytes)}
	}
	if strings.ContainsFunc(c.Task, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, &ConfigError{File: configFile, Field: "task", Err: fmt.Errorf("%+q, printable text wanted", c.Task)}
	}
	if strings.ContainsFunc(c.Version, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, &ConfigError{File: configFile, Field: "version", Err: fmt.Errorf("%+q, printable ASCII wanted: requests and letters have it in a header", c.Version)}
	}
	weights, err := c.weights()
	if err != nil {
		return nil, err
	}
	m := &Model{name: name, version: cmp.Or(c.Version, "1"), task: c.Task, kind: c.ModelType}
	switch c.ModelType {
	case FamilyLM:
		err = m.loadLM(src, c, text)
	case FamilySeq2Seq:
		err = m.loadSeq2Seq(src, c, text)
	case FamilyClassifier:
		err = m.loadClassifier(src, c, text)
	case FamilyTree:
		err = m.loadTree(src, c, text)
	default:
		err = &ConfigError{File: configFile, Field: "model_type", Err: fmt.Errorf("%.32q, %s wanted", c.ModelType, oneFamily())}
	}
	if err != nil {
		return nil, err
	}
	m.program = m.family.Program().WithWeights(weights)
	if m.digest, m.weightsSum, err = src.hash(); err != nil {
		return nil, err
	}
	if m.golden, err = readGolden(src.fsys, m.weightsSum); err != nil {
		return nil, err
	}
	return m, nil
}

// oneFamily says what values model_type can have.
func oneFamily() string {
	return "one of " + strings.Join([]string{FamilyLM, FamilySeq2Seq, FamilyClassifier, FamilyTree}, ", ")
}

// unreadableConfig is the error for a configuration that could not be read. Where
// a text is wanted and something else stands, it names the key.
func unreadableConfig(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	wanted := "a string"
	switch e.Field {
	case "weights":
		wanted = oneWeightType
	case "model_type":
		wanted = oneFamily()
	case "task", "version", "segment":
	default:
		return &ConfigError{File: configFile, Err: brief.Error(err)}
	}
	return &ConfigError{File: configFile, Field: e.Field, Err: fmt.Errorf("%.32s, %s wanted", e.Value, wanted)}
}

// newTokenizer builds the tokenizer that a field of the configuration
// describes, reading its vocabulary.
func newTokenizer(fsys fs.FS, field string, c *tokenizer.Config, size int) (tokenizer.Tokenizer, error) {
	if c == nil {
		return nil, &ConfigError{File: configFile, Field: field, Err: errors.New("missing, and so is tokenizer")}
	}
	var vocabulary []byte
	if c.Vocab != "" {
		if !modeldir.ValidName(c.Vocab) {
			return nil, &ConfigError{File: configFile, Field: field + ".vocab", Err: fmt.Errorf("%.64q, a file of the directory wanted: %w", c.Vocab, modeldir.ErrName)}
		}
		var err error
		if vocabulary, err = readFile(fsys, c.Vocab, maxVocabBytes); err != nil {
			return nil, err
		}
	}
	t, err := tokenizer.New(*c, vocabulary, size)
	if err != nil {
		return nil, &ConfigError{File: configFile, Field: field, Err: err}
	}
	return t, nil
}

// readFile reads a file of at most limit bytes.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	s, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, &ConfigError{File: name, Err: err}
	}
	if !s.Mode().IsRegular() || s.Size() > limit {
		return nil, &ConfigError{File: name, Err: fmt.Errorf("%d bytes, a file of at most %d wanted", s.Size(), limit)}
	}
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, &ConfigError{File: name, Err: err}
	}
	return b, nil
}
