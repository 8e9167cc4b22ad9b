package ask_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
)

// dialed returns a connection of the dialer and its other end.
func dialed(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if ours, err = (ask.Dialer{}).Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	theirs = <-accepted
	t.Cleanup(func() { _, _, _ = ours.Close(), theirs.Close(), l.Close() }) // some are closed
	return ours, theirs
}

// TestConnCarriesAll sends more than sockets hold, both ways at once, to readers
// that wait and to writers that wait.
func TestConnCarriesAll(t *testing.T) {
	t.Parallel()
	ours, theirs := dialed(t)
	sent := make([]byte, 4<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	ended := make(chan error, 4)
	for _, way := range [][2]net.Conn{{ours, theirs}, {theirs, ours}} {
		go func() {
			n, err := way[0].Write(sent)
			if err == nil && n != len(sent) {
				err = io.ErrShortWrite
			}
			ended <- err
		}()
		go func() {
			got := make([]byte, len(sent))
			_, err := io.ReadFull(way[1], got)
			if err == nil && !bytes.Equal(got, sent) {
				err = errors.New("other bytes came than were sent")
			}
			ended <- err
		}()
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestConnEnds wants each way in which a connection ends, or time runs out, to show.
func TestConnEnds(t *testing.T) {
	t.Parallel()
	byte1 := make([]byte, 1)
	t.Run("the other side closes", func(t *testing.T) {
		t.Parallel()
		ours, theirs := dialed(t)
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := ours.Read(byte1); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d, %v", n, err)
		}
		var err error
		for range 1000 { // the first ones may go out before the answer is that nobody reads
			if _, err = ours.Write(make([]byte, 1<<16)); err != nil {
				break
			}
		}
		if err == nil {
			t.Error("written to nobody")
		}
	})
	t.Run("this side closes", func(t *testing.T) {
		t.Parallel()
		ours, _ := dialed(t)
		ended := make(chan error)
		go func() {
			_, err := ours.Read(byte1)
			ended <- err
		}()
		if err := ours.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read %v", err)
		}
		if _, err := ours.Write(byte1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write %v", err)
		}
	})
	t.Run("time runs out", func(t *testing.T) {
		t.Parallel()
		ours, _ := dialed(t)
		if err := ours.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Read(byte1); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %v", err)
		}
		if n, err := ours.Write(make([]byte, 64<<20)); n == 64<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if c, err := (ask.Dialer{}).Dial("tcp", l.Addr().String()); err == nil {
			t.Errorf("connected: %v", c.Close())
		}
	})
	t.Run("no room to read into", func(t *testing.T) {
		t.Parallel()
		ours, _ := dialed(t)
		if n, err := ours.Read(nil); n != 0 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
	})
}

// TestOneProcessor is not parallel: the setting is the process's.
func TestOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	restore := ask.OneProcessor()
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors", n)
	}
	restore()
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("%d processors afterwards, %d before", n, before)
	}
}

// TestConnUnderTLS has TLS on the connection.
func TestConnUnderTLS(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("frames "), 1<<17)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client := server.Client()
	client.Transport.(*http.Transport).Dial = (ask.Dialer{}).Dial //nolint:staticcheck // the dialer is one without a context
	answer, err := client.Post(server.URL, "text/plain", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes came of %d: %v", len(got), len(text), err)
	}
}
