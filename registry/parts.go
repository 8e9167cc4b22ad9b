package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"
)

// Sizes of what is sent, and how many questions are asked at once.
const (
	chunkBytes    = 512 << 10
	chunkHeadroom = 4 << 10 // for headers
	questions     = 8
	// maxMetaBytes of the record of a part; nats.go's are below 1 KiB.
	maxMetaBytes = 16 << 10
)

// The server's codes for a stream or an account that is full.
const (
	apiAccountFull = 10002
	apiServerFull  = 10023
	apiDiskFull    = 10047
	apiStoreFailed = 10077
	apiTooMany     = 10167
)

// shelf is the object store as it was when it was asked.
type shelf struct {
	chunks map[string]uint64 // messages of each chunk subject
	room   int64             // bytes that are free; -1: no bound
	bytes  uint64            // that are used
}

func (r *Registry) storeStream() string { return "OBJ_" + r.models }

func (r *Registry) chunkSubject(id string) string { return "$O." + r.models + ".C." + id }

func (r *Registry) metaSubject(sum string) string {
	return "$O." + r.models + ".M." + base64.URLEncoding.EncodeToString([]byte(sum))
}

// look asks what the object store has.
func (r *Registry) look(ctx context.Context) (*shelf, error) {
	stream, err := r.store(ctx)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(r.chunkSubject(">")))
	if err != nil {
		return nil, fmt.Errorf("ask the object store: %w", err)
	}
	s := &shelf{chunks: info.State.Subjects, room: -1, bytes: info.State.Bytes}
	if most := info.Config.MaxBytes; most > 0 {
		s.room = max(0, most-int64(info.State.Bytes))
	}
	return s, nil
}

// store is the object store's stream.
func (r *Registry) store(ctx context.Context) (jetstream.Stream, error) {
	stream, err := r.js.Stream(ctx, r.storeStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders) {
		return nil, ErrNoRegistry
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the object store: %w", err)
	}
	return stream, nil
}

// incomplete returns those of the parts that are not stored whole, each once, and
// the room there is. That a part's record is there proves nothing: its chunks may
// have been refused.
func (r *Registry) incomplete(ctx context.Context, parts []part) (missing []part, room int64, err error) {
	err = repeat(ctx, partPatience, func(ctx context.Context) error {
		s, err := r.look(ctx)
		if err != nil {
			return err
		}
		room = s.room
		missing, err = r.compare(ctx, s, parts)
		return err
	})
	return missing, room, err
}

// compare asks for the record of each part.
func (r *Registry) compare(ctx context.Context, s *shelf, parts []part) ([]part, error) {
	missing := make([]bool, len(parts))
	seen := map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(questions)
	for i, p := range parts {
		if seen[p.sum] {
			continue
		}
		seen[p.sum] = true
		g.Go(func() error {
			meta, err := r.meta(ctx, p.sum)
			if err != nil {
				return fmt.Errorf("ask for part %s: %w", p.sum, err)
			}
			missing[i] = !s.whole(meta, p)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []part
	for i, p := range parts {
		if missing[i] {
			out = append(out, p)
		}
	}
	return out, nil
}

// whole says whether a part is there with all its chunks.
func (s *shelf) whole(meta *jetstream.ObjectInfo, p part) bool {
	return meta != nil && !meta.Deleted && meta.Size == uint64(p.size) && meta.Digest == objectDigest(p.sum) &&
		(meta.Opts == nil || meta.Opts.Link == nil) && s.chunks["$O."+meta.Bucket+".C."+meta.NUID] == uint64(meta.Chunks)
}

// objectDigest is the digest of an object store for a SHA-256 in hex.
func objectDigest(sum string) string {
	b, _ := hex.DecodeString(sum) // a valid one
	return "SHA-256=" + base64.URLEncoding.EncodeToString(b)
}

// meta reads the record of a part; nil when there is none that can be read.
func (r *Registry) meta(ctx context.Context, sum string) (*jetstream.ObjectInfo, error) {
	m, err := r.request(ctx, jetstream.DefaultAPIPrefix+"DIRECT.GET."+r.storeStream()+"."+r.metaSubject(sum), nil)
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get(headerStatus); status {
	case "":
	case statusNone:
		return nil, nil
	default:
		return nil, fmt.Errorf("server: status %.8s %.64s", status, m.Header.Get("Description"))
	}
	return r.readMeta(m.Data, sum), nil
}

// readMeta reads the record of the part of a name; nil when it is none.
func (r *Registry) readMeta(data []byte, sum string) *jetstream.ObjectInfo {
	var meta jetstream.ObjectInfo
	if len(data) > maxMetaBytes || json.Unmarshal(data, &meta) != nil || meta.Name != sum || meta.Bucket != r.models || !validID(meta.NUID) {
		return nil
	}
	return &meta
}

// validID says whether an id of chunks is one token of a subject.
func validID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// put stores a part as an object, its record only after the server has confirmed
// all chunks in their order. The library's own Put sends the record without
// waiting, and repeats a refused chunk with the bytes of a later one.
func (r *Registry) put(ctx context.Context, p part, data []byte) error {
	before, err := r.meta(ctx, p.sum)
	if err != nil {
		return err
	}
	meta := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: p.sum, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(r.chunkSize())}},
		Bucket:     r.models, NUID: nuid.Next(), Size: uint64(len(data)), Digest: objectDigest(p.sum),
	}
	if meta.Chunks, err = r.putChunks(ctx, r.chunkSubject(meta.NUID), data); err != nil {
		r.purgeChunks(ctx, meta.NUID)
		return err
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: r.metaSubject(p.sum), Data: text, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	if err := r.confirm(ctx, m); err != nil {
		return err // whether it is stored is open: the chunks stay
	}
	if before != nil && before.NUID != meta.NUID {
		r.purgeChunks(ctx, before.NUID)
	}
	return nil
}

// confirm stores a message and waits for one confirmation.
func (r *Registry) confirm(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, m)
	return err
}

// putChunks stores data in messages of a subject and waits for all confirmations.
func (r *Registry) putChunks(ctx context.Context, subject string, data []byte) (uint32, error) {
	var sent []jetstream.PubAckFuture
	for len(data) > 0 {
		n := min(len(data), r.chunkSize())
		f, err := r.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data[:n]}, jetstream.WithRetryAttempts(0))
		if err != nil {
			return 0, err
		}
		sent, data = append(sent, f), data[n:]
	}
	var last uint64
	for _, f := range sent {
		select {
		case ack := <-f.Ok():
			if ack.Sequence <= last {
				return 0, fmt.Errorf("chunks stored in another order: %w", ErrConflict)
			}
			last = ack.Sequence
		case err := <-f.Err():
			return 0, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return uint32(len(sent)), nil
}

func (r *Registry) chunkSize() int {
	return int(min(chunkBytes, max(chunkHeadroom, r.cfg.Conn.MaxPayload()-chunkHeadroom)))
}

// purgeChunks frees chunks that no record names. What stays is for the sweep.
func (r *Registry) purgeChunks(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Timeout)
	defer cancel()
	stream, err := r.store(ctx)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(r.chunkSubject(id)))
	}
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelDebug, "chunks left for the sweep", slog.Any("error", err))
	}
}

// patience is how long a part may take.
func patience(p part) time.Duration {
	return partPatience + time.Duration(p.size)*time.Second>>20
}

// full says whether the server refused for want of room.
func full(err error) bool {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.ErrorCode {
	case apiAccountFull, apiServerFull, apiDiskFull, apiStoreFailed:
		return true
	}
	return false
}

// passes says whether the same may succeed later.
func passes(err error) bool {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return !full(err) && (refused.Code >= 500 || refused.ErrorCode == apiTooMany)
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return true
	}
	for _, e := range []error{
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout, jetstream.ErrTooManyStalledMsgs,
		context.DeadlineExceeded, ErrNoRegistry, ErrConflict,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// tries is how often a part is sent or fetched.
const tries = 5

// repeat calls do, each time with a deadline, until it succeeds, fails for good or
// has failed [tries] times, with pauses of 0.5 to 4 s.
func repeat(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	once := func() error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return do(ctx)
	}
	pause := 500 * time.Millisecond
	for n := 1; ; n++ {
		err := once()
		if err == nil || n == tries || ctx.Err() != nil || !passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// Progress is how far a push or fetch is, in bytes.
type Progress struct {
	// Done of Total are where they shall be.
	Done, Total int64
	// Skipped of Done were there before, or equal others.
	Skipped int64
}

// meter counts for several goroutines and tells one by one.
type meter struct {
	tell func(Progress)

	mu  sync.Mutex
	now Progress
}

func newMeter(total int64, tell func(Progress)) *meter {
	if tell == nil {
		tell = func(Progress) {}
	}
	return &meter{tell: tell, now: Progress{Total: total}}
}

// add counts bytes that are done, some of which were there before.
func (m *meter) add(done, skipped int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done += done
	m.now.Skipped += skipped
	m.tell(m.now)
}

// sumOf is the SHA-256 of b in hex.
func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
