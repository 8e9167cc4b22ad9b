package broker

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnheardFramesAreShared has one client leave thousands of frames unheard:
// the frame of another waits all the same, before and after the server's word.
func TestUnheardFramesAreShared(t *testing.T) {
	t.Parallel()
	r := newResender("inbox", func(string, string, []byte) error { return nil })
	defer r.close()
	has := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.frames[1] != nil
	}
	send := func(subject string) uint64 {
		if err := r.send(subject, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		return r.last
	}
	send("infer.out.victim.request0")
	var numbers []uint64
	for i := range 3 * resendFrames {
		numbers = append(numbers, send(fmt.Sprintf("infer.out.hostile.request%d", i)))
	}
	if n := r.pending.frames.len(); n != resendFrames || !has() {
		t.Fatalf("%d frames wait, the victim's: %v", n, has())
	}
	r.missed(1)
	for range 3 { // the server says so again of each, of which most are gone
		for _, number := range numbers {
			r.missed(number)
			r.missed(send("infer.out.hostile.more"))
		}
	}
	if n := r.unheard.frames.len(); n > resendFrames || !has() {
		t.Fatalf("%d frames are sent again, the victim's: %v", n, has())
	}
	large := make([]byte, resendBytes/8)
	for range 20 {
		if err := r.send("infer.out.hostile.large", large); err != nil {
			t.Fatal(err)
		}
		r.missed(r.last)
	}
	if r.unheard.bytes > resendBytes || !has() {
		t.Errorf("%d bytes are sent again, the victim's: %v", r.unheard.bytes, has())
	}
	// A large frame of one is less than the many of another.
	large = make([]byte, 200<<10)
	if err := r.send("infer.out.careful.large", large); err != nil {
		t.Fatal(err)
	}
	careful := r.last
	for i := range 3 * resendFrames {
		send(fmt.Sprintf("infer.out.hostile.request%d", i))
	}
	if r.frames[careful] == nil {
		t.Error("many small frames of one pushed out the large one of another")
	}
	r.close()
	if len(r.frames)+len(r.unheard.frames.owners)+len(r.pending.frames.owners) != 0 {
		t.Errorf("%d frames of %d and %d readers are left", len(r.frames), len(r.pending.frames.owners), len(r.unheard.frames.owners))
	}
}

// TestFramesInDoubtAreSentAgain loses a connection: what may have gone with it is
// sent again over the next one, in order and once, and nothing else is.
func TestFramesInDoubtAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the rest
		var sent []string
		away, lost := false, 0 // lost: publications until the connection goes
		locked := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		r := newResender("inbox", func(subject, _ string, _ []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if away = away || lost == 1; away {
				return errors.New("away")
			}
			lost = max(lost-1, 0)
			sent = append(sent, subject)
			return nil
		})
		defer r.close()
		send := func(subject string) {
			if err := r.send(subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, act func(), want ...string) {
			t.Helper()
			synctest.Wait()
			locked(func() { sent = nil })
			act()
			synctest.Wait()
			locked(func() {
				if !slices.Equal(sent, want) {
					t.Errorf("%s: %v are sent again, want %v", what, sent, want)
				}
			})
		}
		lose := func(after int) {
			r.disconnected()
			locked(func() { away, lost = after == 0, after })
		}
		send("old")
		time.Sleep(doubtFor + time.Second)
		send("a")
		send("b")
		time.Sleep(doubtFor - time.Second)
		send("unheard")
		r.missed(r.last)
		lose(0)
		time.Sleep(time.Hour) // the next try of what nobody heard falls into it
		if err := r.send("refused", nil); err == nil {
			t.Error("a frame is sent without a connection")
		}
		locked(func() { away, lost = false, 3 })
		send("new") // before the word of the connection has come
		want("the connection is lost again", r.reconnected, "a")
		lose(0)
		locked(func() { away, lost = false, 0 })
		want("another one", r.reconnected, "a", "b", "unheard", "new")
		r.missed(4)
		want("unheard", func() { time.Sleep(resendFirst) }, "unheard")
		time.Sleep(doubtFor + time.Second)
		want("later", r.reconnected)
	})
}

// BenchmarkResend sends terminal frames to so many clients in turn, none of which
// the server has a word about.
func BenchmarkResend(b *testing.B) {
	for _, clients := range []int{1, 100, 1000, 5000} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			b.ReportAllocs()
			r := newResender("inbox", func(string, string, []byte) error { return nil })
			defer r.close()
			subjects, payload := make([]string, clients), make([]byte, 200)
			for i := range subjects {
				subjects[i] = fmt.Sprintf("infer.out.client%d.request0", i)
			}
			for i := 0; b.Loop(); i++ {
				if err := r.send(subjects[i%clients], payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
