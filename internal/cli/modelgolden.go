package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/internal/modeldir"
	"github.com/cellmq/cellmq/models"
)

// goldenFile is the file of a model's golden outputs.
const goldenFile = "golden.jsonl"

// The bounds of inputs for golden outputs.
const (
	maxGoldenInputs    = 10_000
	maxGoldenLineBytes = 1 << 20
)

// goldenOptions are the flags of golden.
type goldenOptions struct {
	name      string
	inputs    []string
	file      string
	maxTokens int
	force     bool
	json      bool
}

func newModelGolden(s streams) *cobra.Command {
	o := &goldenOptions{}
	cmd := &cobra.Command{
		Use:   "golden DIR",
		Short: "Record golden outputs of a model that has none",
		Long: `golden runs inputs and writes golden.jsonl into the directory of a model. It proves
that other machines and later versions compute the same, to the bit, and that no bit
of the weights has changed. It does not prove that the model is the one that was
trained: its lines say self_made, and verify, show and the log repeat that. Export
golden outputs from where the model was trained if you can (docs/models.md).

Inputs are --input, repeated, or the lines of the file --inputs, - for stdin; empty
lines do not count. Weights are f32 whatever config.json says. The digest of the
model becomes another one.`,
		Example: `  cellmq model golden ./my-lm --input "In the beginning" --input "And" --max-tokens 32
  cellmq model golden ./my-lm --inputs texts.txt --force`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			defer context.AfterFunc(ctx, stop)() // a second signal ends the process
			return o.record(ctx, s, positional[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "name of the model (default the directory's)")
	flags.StringArrayVar(&o.inputs, "input", nil, "an input; repeatable")
	flags.StringVar(&o.file, "inputs", "", "file with an input in each line, - for stdin")
	cmd.ValidArgsFunction = onlyDirectory
	completeFlag(cmd, "inputs", files)
	flags.IntVar(&o.maxTokens, "max-tokens", 0, "most tokens of an output; 0 is the model's own bound")
	flags.BoolVar(&o.force, "force", false, "replace the golden outputs that are there")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	manual.Note(cmd, manual.Notes{Environment: serveEnvironment})
	return cmd
}

func (o *goldenOptions) record(ctx context.Context, s streams, dir string) error {
	cfg, err := environment()
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	name, err := nameOf(dir, o.name)
	if err != nil {
		return err
	}
	if o.maxTokens < 0 {
		return usagef("--max-tokens %d: must not be negative", o.maxTokens)
	}
	if err := o.absent(dir); err != nil {
		return err
	}
	inputs, err := o.read(s.in)
	if err != nil {
		return err
	}
	files, err := modeldir.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // they were only read
	m, err := models.LoadStrict(without{files, goldenFile}, name)
	if err != nil {
		return err
	}
	defer m.Close()
	m = m.WithWeights(cellrt.F32)
	var lines bytes.Buffer
	err = runOffline(ctx, cfg.ServeConfig, m, 1, func(ctx context.Context, offline *offline) error {
		return m.Record(ctx, offline.run, inputs, o.maxTokens, &lines)
	})
	if err != nil {
		return err
	}
	if err := o.write(dir, lines.Bytes()); err != nil {
		return err
	}
	digest, err := models.Digest(files)
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(s.out, struct {
			Model  string `json:"model"`
			Golden int    `json:"golden"`
			Digest string `json:"digest"`
		}{name, len(inputs), digest})
	}
	_, err = fmt.Fprintf(s.out, "%s: %d golden outputs, self-made; digest %s\n", filepath.Join(dir, goldenFile), len(inputs), digest)
	return err
}

// absent refuses to replace golden outputs.
func (o *goldenOptions) absent(dir string) error {
	if o.force {
		return nil
	}
	path := filepath.Join(dir, goldenFile)
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is there (--force replaces it)", path)
}

// read returns the inputs.
func (o *goldenOptions) read(stdin io.Reader) (inputs []models.Input, err error) {
	if (len(o.inputs) > 0) == (o.file != "") {
		return nil, usagef("inputs wanted: either --input or --inputs")
	}
	for _, text := range o.inputs {
		inputs = append(inputs, models.Input{Text: text})
	}
	if o.file == "" {
		return inputs, nil
	}
	in := stdin
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxGoldenLineBytes)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		if len(inputs) == maxGoldenInputs {
			return nil, fmt.Errorf("--inputs %s: more than %d lines", o.file, maxGoldenInputs)
		}
		inputs = append(inputs, models.Input{Text: lines.Text()})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--inputs %s: line %d: %w", o.file, len(inputs)+1, err)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("--inputs %s: no line", o.file)
	}
	return inputs, nil
}

// write puts the file into the directory, whole or not at all.
func (o *goldenOptions) write(dir string, content []byte) (err error) {
	f, err := os.CreateTemp(dir, ".golden-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = o.absent(dir)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, goldenFile))
	}
	return err
}

// without is a directory without one of its files.
type without struct {
	fs.FS

	name string
}

// Open opens another file.
func (w without) Open(name string) (fs.File, error) {
	if name == w.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return w.FS.Open(name)
}

// ReadDir lists the others.
func (w without) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == w.name }), err
}
