package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/internal/modeldir"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
)

func newModelPush(s streams) *cobra.Command {
	o := &modelOptions{}
	name := ""
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Store a version of a model in NATS",
		Long: `push stores the directory of a model as the version that its config.json names.
Everything is checked before that as a worker does, but its golden outputs are not
run: verify does that. Links that lead out of the directory are refused.

Files are stored in parts. A push that was interrupted goes on where it ended when
it is run again, and nobody sees the version before it is whole. A version does not
change: to store other files give them another version. What no version uses any
longer, delete removes.

The first push makes the store on the server, of 1 GiB unless --store-bytes says
otherwise; a later one with that flag changes it.`,
		Example: `  cellmq model push ./my-lm
  cellmq model push ./checkpoints/17 --name my-lm --store-bytes 1500000000`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			if o.storeBytes < 0 {
				return usagef("--store-bytes %d: must not be negative", o.storeBytes)
			}
			name, err := nameOf(positional[0], name)
			if err != nil {
				return err
			}
			files, err := modeldir.Open(positional[0])
			if err != nil {
				return err
			}
			defer func() { _ = files.Close() }() // they were only read
			m, err := describe(files, name)
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				return o.push(ctx, r, files, m, s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "name of the model (default the directory's)")
	cmd.Flags().Int64Var(&o.storeBytes, "store-bytes", 0, "bytes that the store may take; 0 is as it is, 1 GiB for a new one")
	cmd.ValidArgsFunction = onlyDirectory
	return cmd
}

// nameOf is the name of the model in a directory: the one that was given, else the
// directory's.
func nameOf(dir, given string) (string, error) {
	if given != "" {
		return modelName(given)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if name, err := modelName(filepath.Base(path)); err == nil {
		return name, nil
	}
	return "", usagef("directory %.80q is no name of a model: give one with --name", filepath.Base(path))
}

// describe loads a model and says what its manifest says of it, but the files.
func describe(files fs.FS, name string) (registry.Manifest, error) {
	m, err := models.LoadStrict(files, name)
	if err != nil {
		return registry.Manifest{}, err
	}
	defer m.Close()
	return registry.Manifest{
		Model: name, Version: m.WithWeights(cellrt.F32).Version(), Digest: m.Digest(), Family: m.Family(), Task: m.Task(),
		Weights: m.Weights().String(), Parameters: int64(m.Parameters()), Cells: m.Cells(), Golden: m.GoldenCases(), SelfMade: m.SelfMade(),
	}, nil
}

// pushed is what push tells programs.
type pushed struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bytes   int64  `json:"bytes"`
	Sent    int64  `json:"sent"`
	There   bool   `json:"there"` // the version had been pushed before
}

func (o *modelOptions) push(ctx context.Context, r *registry.Registry, files fs.FS, m registry.Manifest, s streams) error {
	_, err := r.Version(ctx, m.Model, m.Version)
	if err != nil && !errors.Is(err, registry.ErrNotFound) && !errors.Is(err, registry.ErrNoRegistry) {
		return err
	}
	p := pushed{There: err == nil}
	var last registry.Progress // its last call comes before Push returns
	bar := newByteBar(s)
	stored, err := r.Push(ctx, files, m, func(now registry.Progress) {
		last = now
		bar.show(now.Done, now.Total)
	})
	bar.clear()
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), sayInterrupted(s, m, last))
	}
	if err != nil {
		return err
	}
	p.Sent = last.Done - last.Skipped
	p.Model, p.Version, p.Digest, p.Bytes = stored.Model, stored.Version, stored.Digest, stored.Bytes()
	if err := warnOfGolden(stored, s); err != nil {
		return err
	}
	if o.json {
		return writeJSON(s.out, p)
	}
	how := "pushed"
	if p.There {
		how = "was there"
	}
	_, err = fmt.Fprintf(s.out, "%s@%s %s: %s, %s of them sent, digest %s\n", p.Model, p.Version, how, sizeText(p.Bytes), sizeText(p.Sent), p.Digest)
	return err
}

// sayInterrupted tells how much of a version is stored when its push is interrupted.
func sayInterrupted(s streams, m registry.Manifest, last registry.Progress) error {
	stored := "nothing was sent"
	if last.Done > 0 {
		stored = fmt.Sprintf("%s of %s are stored, and pushing it again goes on from there", sizeText(last.Done), sizeText(last.Total))
	}
	_, err := fmt.Fprintf(s.err, "cellmq: interrupted, push of %s@%s: %s\n", m.Model, shown(m.Version), stored)
	return err
}

// warnOfGolden says when a version cannot be proved right, or not from outside.
func warnOfGolden(m *registry.Manifest, s streams) error {
	if m.Golden > 0 {
		return nil
	}
	_, err := fmt.Fprintf(s.err, "cellmq: %s@%s has no golden outputs: workers cannot tell whether they compute it right ('cellmq model golden' makes some)\n",
		m.Model, m.Version)
	return err
}

func newModelPull(s streams) *cobra.Command {
	o := &modelOptions{}
	cmd := &cobra.Command{
		Use:   "pull NAME@VERSION DIR",
		Short: "Write a version that is stored in NATS into a directory",
		Long: `pull makes the directory with the files of a version, compared with the digests that
it was stored under. There is no such directory before, and afterwards it is whole or
not there.`,
		Example: `  cellmq model pull my-lm@2 ./models/my-lm
  cellmq dlq replay 7 --model-dir ./models`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, version, err := oneVersion(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				return o.pull(ctx, r, name, version, positional[1], s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = firstThenDirectory(storedVersions)
	return cmd
}

func (o *modelOptions) pull(ctx context.Context, r *registry.Registry, name, version, dir string, s streams) error {
	m, err := r.Version(ctx, name, version)
	if err != nil {
		return err
	}
	bar := newByteBar(s)
	err = r.Fetch(ctx, m, dir, func(now registry.Progress) { bar.show(now.Done, now.Total) })
	bar.clear()
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(s.out, struct {
			Model     string `json:"model"`
			Version   string `json:"version"`
			Digest    string `json:"digest"`
			Bytes     int64  `json:"bytes"`
			Directory string `json:"directory"`
		}{m.Model, m.Version, m.Digest, m.Bytes(), dir})
	}
	_, err = fmt.Fprintf(s.out, "%s@%s is in %s: %s, digest %s\n", m.Model, m.Version, dir, sizeText(m.Bytes()), m.Digest)
	return err
}
