package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cellmq/cellmq/internal/modeldir"
)

// The bounds of a manifest.
const (
	manifestFormat  = 1
	maxModelName    = 64
	maxTextBytes    = 64 // of a version, family, task or weight type
	maxCells        = 256
	maxCellName     = 128
	maxFiles        = modeldir.MaxFiles
	maxFileBytes    = modeldir.MaxFileBytes
	maxVersionBytes = modeldir.MaxBytes
	sumLength       = 64 // of a SHA-256 in hex
)

// Manifest describes a version of a model. It does not change once it is stored.
type Manifest struct {
	// Format of this record, 1.
	Format int `json:"format"`
	// Model is a name of 1 to 64 of a-z, 0-9 and the hyphen.
	Model string `json:"model"`
	// Version is 1 to 64 bytes of printable text.
	Version string `json:"version"`
	// Digest identifies the directory, in hex: it is that of models.Load.
	Digest string `json:"digest"`
	// Family, Task and Weights are those of the model's configuration.
	Family  string `json:"family"`
	Task    string `json:"task"`
	Weights string `json:"weights"`
	// Parameters is how many numbers the model has.
	Parameters int64 `json:"parameters"`
	// Cells are the names of the model's cells.
	Cells []string `json:"cells"`
	// Golden is how many golden outputs there are.
	Golden int `json:"golden"`
	// SelfMade says that the golden outputs were made by cellmq.
	SelfMade bool `json:"self_made"`
	// Files of the directory in the order of their names.
	Files []File `json:"files"`
	// Pushed is when the version was made, by the clock of who made it.
	Pushed time.Time `json:"pushed"`
}

// File is a file of a version.
type File struct {
	// Name of the file in the directory.
	Name string `json:"name"`
	// Size in bytes.
	Size int64 `json:"size"`
	// SHA256 of the bytes, in hex.
	SHA256 string `json:"sha256"`
	// Parts are the SHA-256 of each [PartBytes] of it and of the rest, in hex.
	Parts []string `json:"parts"`
}

// Bytes is the size of all files.
func (m *Manifest) Bytes() int64 {
	var sum int64
	for i := range m.Files {
		sum += m.Files[i].Size
	}
	return sum
}

// name is how errors name the version.
func (m *Manifest) name() string { return versionName(m.Model, m.Version) }

func versionName(model, version string) string { return fmt.Sprintf("%.64s@%.64s", model, version) }

// part is a part of a file.
type part struct {
	sum    string // of its bytes, in hex; its name in the object store
	file   string
	offset int64
	size   int64
}

// parts are the parts of all files in their order.
func (m *Manifest) parts() []part {
	var all []part
	for i := range m.Files {
		f := &m.Files[i]
		for n, sum := range f.Parts {
			offset := int64(n) * PartBytes
			all = append(all, part{sum: sum, file: f.Name, offset: offset, size: min(PartBytes, f.Size-offset)})
		}
	}
	return all
}

// fileList stops at a file too many, so that a record cannot make a list that is
// much larger than itself.
type fileList []File

// UnmarshalJSON reads the list as [decode] reads a record.
func (l *fileList) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("files: a list wanted")
	}
	for d.More() {
		if len(*l) == maxFiles {
			return fmt.Errorf("files: more than %d", maxFiles)
		}
		var f File
		if err := d.Decode(&f); err != nil {
			return err
		}
		*l = append(*l, f)
	}
	return nil
}

// parseManifest reads the manifest that a key names and checks all of it.
func parseManifest(data []byte, model, version string) (*Manifest, error) {
	type plain Manifest
	var record struct {
		plain
		Files fileList `json:"files"`
	}
	if err := decode(data, recordBytes, &record); err != nil {
		return nil, err
	}
	m := Manifest(record.plain)
	m.Files = record.Files
	if m.Model != model || m.Version != version {
		return nil, fmt.Errorf("model, version: %s, %s wanted: %w", m.name(), versionName(model, version), ErrMalformed)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return &m, nil
}

// check says which field is outside its bounds.
func (m *Manifest) check() error {
	if err := m.checkFields(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrMalformed)
	}
	if err := m.checkFiles(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrMalformed)
	}
	return nil
}

func (m *Manifest) checkFields() error {
	switch {
	case m.Format != manifestFormat:
		return fmt.Errorf("format: %d, %d wanted", m.Format, manifestFormat)
	case !validModel(m.Model):
		return fmt.Errorf("model: %.64q, 1 to %d of a-z, 0-9 and - wanted", m.Model, maxModelName)
	case m.Version == "" || !printable(m.Version, maxTextBytes):
		return fmt.Errorf("version: %.64q, 1 to %d bytes of printable text wanted", m.Version, maxTextBytes)
	case !validSum(m.Digest):
		return fmt.Errorf("digest: %.64q, %d of 0-9 and a-f wanted", m.Digest, sumLength)
	case !printable(m.Family, maxTextBytes) || !printable(m.Task, maxTextBytes) || !printable(m.Weights, maxTextBytes):
		return fmt.Errorf("family, task, weights: at most %d bytes of printable text wanted", maxTextBytes)
	case m.Parameters < 0 || m.Golden < 0:
		return fmt.Errorf("parameters, golden: %d, %d, not negative wanted", m.Parameters, m.Golden)
	case len(m.Cells) > maxCells:
		return fmt.Errorf("cells: %d, at most %d wanted", len(m.Cells), maxCells)
	}
	for _, c := range m.Cells {
		if !printable(c, maxCellName) {
			return fmt.Errorf("cells: %.64q, at most %d bytes of printable text wanted", c, maxCellName)
		}
	}
	return nil
}

func (m *Manifest) checkFiles() error {
	if len(m.Files) < 1 || len(m.Files) > maxFiles {
		return fmt.Errorf("files: %d, 1 to %d wanted", len(m.Files), maxFiles)
	}
	sum, before := int64(0), ""
	for i := range m.Files {
		f := &m.Files[i]
		switch {
		case !modeldir.ValidName(f.Name):
			return fmt.Errorf("files: %.64q: %w", f.Name, modeldir.ErrName)
		case f.Name <= before:
			return fmt.Errorf("files: %.64q after %.64q, the order of names wanted", f.Name, before)
		case f.Size < 0 || f.Size > maxFileBytes:
			return fmt.Errorf("files: %.64q has %d bytes, 0 to %d wanted", f.Name, f.Size, int64(maxFileBytes))
		case !validSum(f.SHA256):
			return fmt.Errorf("files: sha256 of %.64q is %.64q, %d of 0-9 and a-f wanted", f.Name, f.SHA256, sumLength)
		case int64(len(f.Parts)) != partsOf(f.Size):
			return fmt.Errorf("files: %.64q has %d parts, %d wanted", f.Name, len(f.Parts), partsOf(f.Size))
		}
		for _, p := range f.Parts {
			if !validSum(p) {
				return fmt.Errorf("files: part of %.64q is %.64q, %d of 0-9 and a-f wanted", f.Name, p, sumLength)
			}
		}
		before = f.Name
		if sum += f.Size; sum > maxVersionBytes {
			return fmt.Errorf("files: more than %d bytes together", int64(maxVersionBytes))
		}
	}
	return nil
}

// partsOf is how many parts a file of n bytes has.
func partsOf(n int64) int64 { return (n + PartBytes - 1) / PartBytes }

func validModel(s string) bool {
	outside := func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }
	return s != "" && len(s) <= maxModelName && !strings.ContainsFunc(s, outside)
}

func validSum(s string) bool {
	outside := func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }
	return len(s) == sumLength && !strings.ContainsFunc(s, outside)
}

func printable(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// The keys of versions, as the subjects of their messages.
func (r *Registry) versionSubject(model, version string) string {
	return "$KV." + r.models + ".version." + model + "." + base64.RawURLEncoding.EncodeToString([]byte(version))
}

// versionOf reads the subject of a version.
func (r *Registry) versionOf(subject string) (model, version string, ok bool) {
	key, ok := strings.CutPrefix(subject, "$KV."+r.models+".version.")
	if !ok {
		return "", "", false
	}
	model, code, ok := strings.Cut(key, ".")
	text, err := base64.RawURLEncoding.DecodeString(code)
	return model, string(text), ok && err == nil
}
