package worker

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := newShares[requestKey, int](8, time.Minute)
	key := func(i int) requestKey { return requestKey{"me", strconv.Itoa(i)} }
	for i := range 100 {
		s.add(key(i), i, now)
		s.add(key(i), i, now) // again: no second entry
	}
	if len(s.known) != 8 || len(s.clients) != 1 || len(s.most) != 1 {
		t.Fatalf("%d keys of %d clients, %d shares", len(s.known), len(s.clients), len(s.most))
	}
	for i := range 100 {
		if v, ok := s.get(key(i), now); ok != (i >= 92) || ok && v != i {
			t.Errorf("%d: %d, %v", i, v, ok)
		}
	}
	s.add(key(92), 92, now) // the oldest is the newest now
	s.add(key(100), 100, now)
	if _, ok := s.get(key(92), now); !ok {
		t.Error("a key that came again gives way as the oldest")
	}
	if _, ok := s.get(key(100), now.Add(time.Minute)); ok {
		t.Error("a key outlives its time")
	}
	s.add(key(101), 101, now.Add(time.Minute))
	if len(s.known) != 1 {
		t.Errorf("%d keys, of which one lives", len(s.known))
	}
}

// TestSharesAreFair has clients of all sizes at random, and wants nobody with
// less than his part to lose anything, and the structure to be whole.
func TestSharesAreFair(t *testing.T) {
	t.Parallel()
	const limit, clients = 64, 8
	now := time.Unix(1000, 0)
	r := rand.New(rand.NewPCG(1, 2))
	s := newShares[requestKey, int](limit, time.Hour)
	added := map[string]int{}
	for i := range 20_000 {
		client := fmt.Sprint("c", min(r.IntN(clients), r.IntN(clients), r.IntN(clients)))
		if client != "c0" && added[client] == limit/clients {
			client = "c0"
		}
		added[client]++
		s.add(requestKey{client, strconv.Itoa(i)}, i, now)
		if len(s.known) > limit || len(s.clients) != len(s.most) {
			t.Fatalf("%d keys, %d clients, %d shares", len(s.known), len(s.clients), len(s.most))
		}
	}
	for client, n := range added {
		if has := s.clients[client].keys.Len(); client != "c0" && has != n {
			t.Errorf("%s has %d of %d keys", client, has, n)
		}
	}
	total := 0
	for i, share := range s.most {
		total += share.keys.Len()
		if share.place != i || s.clients[share.client] != share || share.keys.Len() > s.most[0].keys.Len() {
			t.Errorf("share %d of %s is at %d", i, share.client, share.place)
		}
	}
	if total != len(s.known) {
		t.Errorf("%d keys in shares, %d known", total, len(s.known))
	}
}

// TestFloodOfCancels has a client cancel what nobody knows, as fast as it can:
// another client's cancellation is remembered, and the memory is bounded. The
// keys are cut out of something large.
func TestFloodOfCancels(t *testing.T) {
	// Not parallel: it measures memory.
	const most = 16 << 20
	now := time.Unix(1000, 0)
	table := newTable()
	victim := tableRun("victim", "0123456789")
	table.find(victim.key(), now)
	before := heapInUse()
	for i := range 100_000 {
		text := fmt.Sprintf("%032d%s", i, strings.Repeat("x", 1024))
		if _, state := table.find(requestKey{"hostile", text[:32]}, now); state != broker.CancelUnknown {
			t.Fatalf("cancel %d: %s", i, state)
		}
	}
	if grown := heapInUse() - before; grown > most {
		t.Errorf("%d bytes for %d tombstones", grown, len(table.tombstones.known))
	}
	if table.add(victim, now) {
		t.Error("the other client's cancellation is forgotten")
	}
	if n := len(table.tombstones.known); n != maxRemembered {
		t.Errorf("%d tombstones", n)
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
