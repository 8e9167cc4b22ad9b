package models

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode"

	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/safetensors"
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
	maxWeightsBytes = 4 << 30
	maxTextBytes    = 64 // of a version or task
	maxNameBytes    = 64
	maxFileName     = 255
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
		if hidden(e.Name()) {
			continue
		}
		sub := os.DirFS(path.Join(dir, e.Name()))
		if _, err := fs.Stat(sub, configFile); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // something else lies here
		}
		m, err := Load(sub, e.Name())
		if err != nil {
			errs.Add(err)
			continue
		}
		models = append(models, m)
	}
	return models, errs.Err()
}

// Load reads the model in fsys, whose root is the model's directory, and
// checks all of it. A name is 1 to 64 of a-z, 0-9 and the hyphen.
func Load(fsys fs.FS, name string) (*Model, error) {
	if !validName(name) {
		return nil, fmt.Errorf("model name %.80q, 1 to %d of a-z, 0-9 and - wanted", name, maxNameBytes)
	}
	m, err := load(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return m, nil
}

func validName(name string) bool {
	outside := func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}
	return name != "" && len(name) <= maxNameBytes && !strings.ContainsFunc(name, outside)
}

func load(fsys fs.FS, name string) (*Model, error) {
	var c config
	text, err := readFile(fsys, configFile, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, unreadableConfig(err)
	}
	if len(c.Version) > maxTextBytes || len(c.Task) > maxTextBytes {
		return nil, &ConfigError{File: configFile, Field: "version, task", Err: fmt.Errorf("at most %d bytes wanted", maxTextBytes)}
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
		err = m.loadLM(fsys, c, text)
	case FamilySeq2Seq:
		err = m.loadSeq2Seq(fsys, c, text)
	case FamilyClassifier:
		err = m.loadClassifier(fsys, c, text)
	case FamilyTree:
		err = m.loadTree(fsys, c, text)
	default:
		err = &ConfigError{File: configFile, Field: "model_type", Err: fmt.Errorf("%.32q, %s wanted", c.ModelType, oneFamily())}
	}
	if err != nil {
		return nil, err
	}
	m.program = m.family.Program().WithWeights(weights)
	if m.golden, err = readGolden(fsys); err != nil {
		return nil, err
	}
	if m.digest, err = digest(fsys); err != nil {
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

// loadWeights reads the model's tensors.
func loadWeights(fsys fs.FS) (*safetensors.File, error) {
	b, err := readFile(fsys, weightsFile, maxWeightsBytes)
	if err != nil {
		return nil, err
	}
	tensors, err := safetensors.Parse(b)
	if err != nil {
		return nil, &ConfigError{File: weightsFile, Err: err}
	}
	return tensors, nil
}

// newTokenizer builds the tokenizer that a field of the configuration
// describes, reading its vocabulary.
func newTokenizer(fsys fs.FS, field string, c *tokenizer.Config, size int) (tokenizer.Tokenizer, error) {
	if c == nil {
		return nil, &ConfigError{File: configFile, Field: field, Err: errors.New("missing, and so is tokenizer")}
	}
	var vocabulary []byte
	if c.Vocab != "" {
		if !plainFile(c.Vocab) {
			return nil, &ConfigError{File: configFile, Field: field + ".vocab", Err: fmt.Errorf("%.64q, a file of the directory wanted", c.Vocab)}
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

// plainFile says whether a name can be that of a file in a model's directory
// and in an error's text.
func plainFile(name string) bool {
	outside := func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }
	return len(name) <= maxFileName && fs.ValidPath(name) && !strings.ContainsFunc(name, outside)
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

// hidden says whether a name is none of a model's: editors and tools leave
// files and links of such names, which may lead nowhere and are not looked at.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// digest hashes names and contents, each after its length, so that no two
// directories with different files look the same. Hidden files and
// sub-directories are none of it.
func digest(fsys fs.FS) (string, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return "", fmt.Errorf("read directory: %w", err)
	}
	h := sha256.New()
	for _, e := range entries {
		if hidden(e.Name()) {
			continue
		}
		s, err := fs.Stat(fsys, e.Name())
		if err != nil {
			return "", &ConfigError{File: e.Name(), Err: err}
		}
		if !s.Mode().IsRegular() {
			continue
		}
		var lengths [16]byte
		binary.BigEndian.PutUint64(lengths[:8], uint64(len(e.Name())))
		binary.BigEndian.PutUint64(lengths[8:], uint64(s.Size()))
		h.Write(lengths[:])
		h.Write([]byte(e.Name()))
		if err := hashFile(h, fsys, e.Name()); err != nil {
			return "", &ConfigError{File: e.Name(), Err: err}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashFile(w io.Writer, fsys fs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
