package broker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// TestUnheardFinalIsSentAgain has a client that comes back after its requests
// have ended.
func TestUnheardFinalIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*broker.TokenStream){"given up": nil, "told": func(*broker.TokenStream) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, conn := setup(t, broker.Config{})
			out, err := conn.Publisher(broker.PublisherConfig{Gone: gone})
			if err != nil {
				t.Fatal(err)
			}
			const requests = 20
			for i := range requests {
				s := out.Stream(&broker.Delivery{
					Request: &broker.Request{ID: fmt.Sprintf("request%d", i), Reply: "infer.out.late.shared00"},
					Lease:   &broker.Lease{Epoch: 1, Attempt: 1},
				})
				if err := s.Token(&broker.Frame{Text: "x", Tokens: []int32{1}}); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					err = s.Final(&broker.Frame{Text: "x", Final: &broker.Final{}})
				} else {
					err = s.Fail(broker.NewError(broker.CodeInternal, "x"), nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(600 * time.Millisecond) // away for more than one try
			sub, err := conn.NATS().SubscribeSync("infer.out.late.*")
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for range requests {
				m, err := sub.NextMsg(5 * time.Second)
				if err != nil {
					t.Fatalf("after %d terminal frames: %v", len(seen), err)
				}
				f, err := broker.DecodeFrame(m.Data)
				if err != nil || !f.Type.Terminal() || f.Seq != 1 || seen[f.ID] {
					t.Errorf("frame %s of %s, seq %d, %v", f.Type, f.ID, f.Seq, err)
				}
				seen[f.ID] = true
			}
			if m, err := sub.NextMsg(1500 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
				t.Errorf("a frame that was heard comes again: %s, %v", m.Data, err)
			}
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
