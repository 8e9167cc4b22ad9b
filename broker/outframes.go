package broker

import (
	"context"
	"errors"
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
// on; fewer than n frames are all there are now. Nothing stored is no error.
func (c *Conn) OutFrames(ctx context.Context, client, id string, from uint64, n int) (frames []OutFrame, next uint64, err error) {
	return nil, from, errors.ErrUnsupported
}
