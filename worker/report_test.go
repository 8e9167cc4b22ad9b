package worker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cellmq/cellmq/registry"
)

// TestWorkerOfManyModelsIsHeard deploys more models than a report has room for,
// none of which can be loaded: the worker still reports, says how many it leaves out,
// and a deployment goes through.
func TestWorkerOfManyModelsIsHeard(t *testing.T) {
	t.Parallel()
	const many = 300
	server := newServer(t)
	s := newShop(t, server)
	for i := range many {
		name := fmt.Sprintf("absent%03d", i)
		sum := sha256.Sum256([]byte(name))
		d := registry.Undeployed(name)
		d.Serial, d.Active = 1, registry.Ref{Version: "1", Digest: hex.EncodeToString(sum[:])}
		d.Previous = d.Active
		if err := s.Write(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	w := startServing(t, server, nil)
	eventually(t, "the report is cut", func() bool {
		reports, err := s.Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(reports) == 1 && len(reports[0].Models)+reports[0].Omitted == many+1 && reports[0].Omitted > 0
	})
	if n := metric(t, w, `cellmq_model_failed{model="absent000",version="1"}`); n != 1 {
		t.Errorf("absent000@1 has failed: %v", n)
	}
	if n := metric(t, w, `cellmq_model_loads_total{model="absent000",result="failed"}`); n == 0 {
		t.Error("its failure is not counted")
	}
	s.pushLetters("z", "1")
	s.deploy("z", "1")
	c := newBuyer(t, connect(t, server), "me")
	eventually(t, "z is served", func() bool { return c.ask("rt", "z", "a", 4).Final != nil })
}
