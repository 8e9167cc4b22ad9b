package broker

import (
	"context"
	"fmt"
)

// OutFrame is a frame that was published on a subject of mode resume.
type OutFrame struct {
	// Sequence in the stream of frames.
	Sequence uint64
	// Payload is the encoded frame.
	Payload []byte
}

// OutFrames reads back up to n frames of a request in mode resume, in the order
// in which they were published, from the sequence from on. next is where to go
// on; fewer than n frames are all there are now. Nothing stored is no error. No
// consumer is made: it is one batch of direct gets after the other.
func (c *Conn) OutFrames(ctx context.Context, client, id string, from uint64, n int) (frames []OutFrame, next uint64, err error) {
	next = from
	if err := checkOwner(client, id); err != nil {
		return nil, next, fmt.Errorf("read frames: %w", err)
	}
	err = c.readFrom(ctx, c.cfg.Stream.out(), c.subjects.outResume(client, id), from, n, func(r *record) bool {
		frames = append(frames, OutFrame{Sequence: r.sequence, Payload: r.data})
		next = r.sequence + 1
		return len(frames) < n
	})
	if err != nil {
		return frames, next, fmt.Errorf("read frames: %w", err)
	}
	return frames, next, nil
}
