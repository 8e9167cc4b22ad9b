package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/internal/modeldir"
)

// FetchPrefix is how the names of directories begin that a fetch which did not end
// leaves beside its target.
const FetchPrefix = ".fetch-"

// Fetch makes the directory dir with the files of a version, read from the
// registry and compared with the digests that m names. dir must not exist; after
// an error it does not exist either, unless another fetch has made it meanwhile.
// A part that is missing is [ErrIncomplete], other bytes than m's are [ErrDigest].
// p, which may be nil, is told how far it is; it must not block.
func (r *Registry) Fetch(ctx context.Context, m *Manifest, dir string, p func(Progress)) error {
	if err := r.fetch(ctx, m, dir, newMeter(m.Bytes(), p)); err != nil {
		return fmt.Errorf("fetch %s: %w", m.name(), err)
	}
	return nil
}

func (r *Registry) fetch(ctx context.Context, m *Manifest, dir string, progress *meter) error {
	if err := m.check(); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s: %w", dir, fs.ErrExist), err)
	}
	missing, _, err := r.incomplete(ctx, m.parts())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d parts, the first is %s of %s: %w", len(missing), missing[0].sum, missing[0].file, ErrIncomplete)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), FetchPrefix)
	if err != nil {
		return err
	}
	err = r.fetchInto(ctx, m, temporary, progress)
	if err == nil {
		err = settle(temporary, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

// settle gives the directory its name. One that is there is as whole as this.
func settle(temporary, dir string) error {
	err := os.Rename(temporary, dir)
	if errors.Is(err, fs.ErrExist) {
		return os.RemoveAll(temporary)
	}
	if err != nil {
		return err
	}
	return syncFile(filepath.Dir(dir))
}

// syncFile has the system write a file or directory to its disk.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fetchInto fills a directory that is there.
func (r *Registry) fetchInto(ctx context.Context, m *Manifest, dir string, progress *meter) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range m.Files {
		f, err := root.OpenFile(m.Files[i].Name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		files[m.Files[i].Name] = f
	}
	if err := r.receive(ctx, m.parts(), files, progress); err != nil {
		return err
	}
	if err := verify(ctx, m, files); err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, 0o755), syncFile(dir))
}

// receive writes parts into their files, some at a time.
func (r *Registry) receive(ctx context.Context, parts []part, files map[string]*os.File, progress *meter) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(senders, len(parts)) {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				p := parts[i]
				err := repeat(ctx, patience(p), func(ctx context.Context) error { return r.get(ctx, p, files[p.file]) })
				if err != nil {
					return fmt.Errorf("part %s of %s: %w", p.sum, p.file, err)
				}
				progress.add(p.size, 0)
			}
			return nil
		})
	}
	return g.Wait()
}

// get reads a part into its place in a file, and no more than its size. It reads
// the chunks with direct gets: the library's own Get waits for a part whose chunks
// are gone, or whose server has restarted, until its deadline.
func (r *Registry) get(ctx context.Context, p part, f *os.File) error {
	meta, err := r.meta(ctx, p.sum)
	if err != nil {
		return err
	}
	if meta == nil {
		return fmt.Errorf("no record: %w", ErrIncomplete)
	}
	h := sha256.New()
	out := io.MultiWriter(io.NewOffsetWriter(f, p.offset), h)
	n, chunks := int64(0), uint32(0)
	err = r.each(ctx, r.storeStream(), r.chunkSubject(meta.NUID), func(_ string, _ uint64, _ time.Time, data []byte) error {
		chunks++
		if n += int64(len(data)); n > p.size {
			return fmt.Errorf("more than %d bytes: %w", p.size, ErrDigest)
		}
		_, err := out.Write(data)
		return err
	})
	sum := hex.EncodeToString(h.Sum(nil))
	switch {
	case err != nil:
		return err
	case chunks != meta.Chunks:
		return fmt.Errorf("%d chunks of %d: %w", chunks, meta.Chunks, ErrIncomplete)
	case sum != p.sum:
		return fmt.Errorf("%d of %d bytes, sha256 %s: %w", n, p.size, sum, ErrDigest)
	}
	return nil
}

// verify compares whole files and the directory with what the manifest names, as
// they are read back.
func verify(ctx context.Context, m *Manifest, files map[string]*os.File) error {
	d := modeldir.NewDigest()
	for i := range m.Files {
		f := &m.Files[i]
		d.File(f.Name, f.Size)
		sum, err := verifyFile(ctx, files[f.Name], f.Size, d)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if sum != f.SHA256 {
			return fmt.Errorf("%s: sha256 %s, %s wanted: %w", f.Name, sum, f.SHA256, ErrDigest)
		}
		if err := files[f.Name].Sync(); err != nil {
			return err
		}
	}
	if d.Sum() != m.Digest {
		return fmt.Errorf("directory: %s, %s wanted: %w", d.Sum(), m.Digest, ErrDigest)
	}
	return nil
}

func verifyFile(ctx context.Context, f *os.File, size int64, all io.Writer) (string, error) {
	whole := sha256.New()
	for offset := int64(0); offset < size; offset += PartBytes {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n := min(PartBytes, size-offset)
		if _, err := io.CopyN(io.MultiWriter(all, whole), io.NewSectionReader(f, offset, n), n); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(whole.Sum(nil)), nil
}
