package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// ResumeState says what a resume request found.
type ResumeState string

// The answers to a resume request. Frames, if any, come beside them on the same
// subject.
const (
	// ResumeRunning: a worker runs it; a frame with the whole output so far comes
	// on the request's own subject, and what follows.
	ResumeRunning ResumeState = "running"
	// ResumeFinished: its stored terminal frame was sent.
	ResumeFinished ResumeState = "finished"
	// ResumeStored: nobody is known to run it, and what is stored of its output
	// was sent, if that is more than the requester has.
	ResumeStored ResumeState = "stored"
	// ResumeQueued: its message is in the queue, where it waits or is a worker's
	// that did not answer. Only said to who asks with the sequence.
	ResumeQueued ResumeState = "queued"
	// ResumeUnknown: nothing is known of it. Without the sequence in the question
	// it may be queued.
	ResumeUnknown ResumeState = "unknown"
	// ResumeServed and ResumeUnserved answer the question that names a model: a
	// queue takes requests for it, or none does.
	ResumeServed   ResumeState = "served"
	ResumeUnserved ResumeState = "unserved"
)

const (
	// lookupWait bounds what is looked up for one resume or cancel request.
	lookupWait = 2 * time.Second
	// outBatch is how many frames are read back at a time.
	outBatch = 64
	// outFrames bounds the frames of a request that are read back.
	outFrames = 1 << 16
)

// frameResume is the type of the answer, which looks like a frame: it may come
// to a reader of all the client's frames.
const frameResume FrameType = "resume"

// resumeMessage is the payload of a resume request, which has no type, and of
// its answer.
type resumeMessage struct {
	Type  FrameType `json:"type,omitempty"`
	ID    string    `json:"id"`
	Index int       `json:"index,omitempty"`
	// Sequence is that of the request's message in the queue; 0: not known.
	Sequence uint64 `json:"seq,omitempty"`
	// Model makes it the question whether a queue takes requests for that model.
	Model string      `json:"model,omitempty"`
	State ResumeState `json:"state,omitempty"`
}

// resumeState reads an answer.
func resumeState(payload []byte) (ResumeState, error) {
	var m resumeMessage
	err := json.Unmarshal(payload, &m)
	return m.State, err
}

// readResume reads {"id": ..., "index": ..., "seq": ...} or {"id": ..., "model": ...}
// in JSON or MessagePack. An id that workers made has the sequence in it.
func readResume(payload []byte) (resumeMessage, error) {
	f, err := readQuestion(payload)
	switch {
	case err != nil:
	case f.Index < 0:
		err = fmt.Errorf("index %d: negative", f.Index)
	case f.Model != "" && !ValidModel(f.Model):
		err = fmt.Errorf("model %q: not [a-z0-9-]{1,%d}", clip(f.Model), maxModelName)
	case f.Seq == 0:
		f.Seq = madeSequence(f.ID)
	}
	return resumeMessage{ID: f.ID, Index: f.Index, Sequence: f.Seq, Model: f.Model}, err
}

// resumeFor checks who asks for what. The reply must be the requester's own,
// since the worker may publish to everybody's. A reply of another kind is taken
// only where nobody has to prove who he is.
func (s *Service) resumeFor(subject, reply string, payload []byte) (m resumeMessage, client string, ok bool) {
	client = subject[len(s.conn.subjects.resume("")):]
	m, err := readResume(payload)
	if err != nil || !ValidClient(client) || !s.conn.ownReply(client, reply) {
		s.conn.log.Debug("resume request not taken", slog.String("client", clip(client)), slog.String("reply", clip(reply)))
		return resumeMessage{}, "", false
	}
	return m, client, true
}

// ownReply reports whether what concerns a client may be sent to reply.
func (c *Conn) ownReply(client, reply string) bool {
	return c.subjects.owns(client, reply) || !c.authorized() && isInbox(reply)
}

// resumeRunning has the worker that runs a request bring its readers up to
// date.
func (s *Service) resumeRunning(subject, reply string, payload []byte) {
	m, client, ok := s.resumeFor(subject, reply, payload)
	if ok && m.Model == "" && s.cfg.Resume != nil && s.cfg.Resume(client, m.ID, m.Index, reply) {
		s.answerResume(reply, m.ID, ResumeRunning)
	}
}

// resumeStored answers from the streams, when it is the client's turn. One worker of
// the queue group does.
func (s *Service) resumeStored(subject, reply string, payload []byte) {
	if m, client, ok := s.resumeFor(subject, reply, payload); ok {
		s.resumes.ask(client, func() { s.lookUp(client, reply, m) })
	}
}

// lookUp answers a resume request from the streams.
func (s *Service) lookUp(client, reply string, m resumeMessage) {
	if m.Model != "" {
		s.answerServed(reply, m)
		return
	}
	ctx, cancel := s.lookup()
	defer cancel()
	// Before the final: one that is settled in between has stored it.
	queued, away := s.inQueue(ctx, client, m)
	final, err := s.conn.Final(ctx, client, m.ID)
	switch {
	case err == nil:
		s.sendStored(reply, m.ID, final.Frame)
		s.answerResume(reply, m.ID, ResumeFinished)
		return
	case !errors.Is(err, ErrNotStored):
		// No answer: the requester asks again.
		s.conn.log.Warn("final not read", slog.String("request_id", m.ID), slog.Any("error", err))
		return
	case away != nil:
		s.conn.log.Debug("queued request not looked up", slog.String("request_id", m.ID), slog.Any("error", away))
		return
	}
	output, encoding, err := s.conn.output(ctx, client, m.ID)
	switch {
	case err != nil:
		s.conn.log.Warn("frames not read back", slog.String("request_id", m.ID), slog.Any("error", err))
		return
	case output.ID == "" && queued:
		s.answerResume(reply, m.ID, ResumeQueued)
		return
	case output.ID == "":
		s.answerResume(reply, m.ID, ResumeUnknown)
		return
	case len(output.Tokens) > m.Index:
		b, err := AppendFrame(nil, encoding, &output)
		if err != nil {
			s.conn.log.Warn("frames not put together", slog.String("request_id", m.ID), slog.Any("error", err))
			return
		}
		s.sendStored(reply, m.ID, b)
	}
	if queued {
		s.answerResume(reply, m.ID, ResumeQueued)
		return
	}
	s.answerResume(reply, m.ID, ResumeStored)
}

// output puts the stored frames of a request together: one token frame with the
// output as far as it has no gap, in the encoding of the frames. Its ID is empty
// when nothing is stored. A terminal frame among them is left to the finals.
func (c *Conn) output(ctx context.Context, client, id string) (out Frame, encoding Encoding, err error) {
	var t tracker
	out.Type = FrameToken
	for from, read := uint64(1), 0; read < outFrames; {
		frames, next, err := c.OutFrames(ctx, client, id, from, outBatch)
		if err != nil {
			return Frame{}, 0, err
		}
		for i := range frames {
			f, err := DecodeFrame(frames[i].Payload)
			if err != nil || f.ID != id { // not a frame of it
				continue
			}
			out.ID = id
			encoding = MsgPack
			if frames[i].Payload[0] == '{' {
				encoding = JSON
			}
			if f.output() && t.accept(&f, false) {
				out.merge(&f)
			}
		}
		if len(frames) < outBatch || next <= from {
			break
		}
		from, read = next, read+len(frames)
	}
	return out, encoding, nil
}

// sendStored sends a frame that was read back.
func (s *Service) sendStored(reply, id string, frame []byte) {
	m := &nats.Msg{Subject: reply, Header: nats.Header{HeaderStored: {"1"}}, Data: frame}
	if err := s.conn.nc.PublishMsg(m); err != nil {
		s.conn.log.Warn("stored frame not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}

func (s *Service) answerResume(reply, id string, state ResumeState) {
	b, err := json.Marshal(resumeMessage{Type: frameResume, ID: id, State: state})
	if err == nil {
		err = s.conn.send(reply, "", b)
	}
	if err != nil {
		s.conn.log.Warn("resume answer not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}
