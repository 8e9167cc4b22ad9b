package worker_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// The trace context of a client, and that of one that is not sampled.
const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceParent = "00-" + traceID + "-" + parentID + "-01"
	unsampled   = "00-" + traceID + "-" + parentID + "-00"
)

// otlp is a collector that keeps the spans it gets.
type otlp struct {
	url string

	mu    sync.Mutex
	spans []*spans.Span
}

func newOTLP(tb testing.TB) *otlp {
	tb.Helper()
	o := &otlp{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := o.take(r); err != nil {
			tb.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		rw.Header().Set("Content-Type", "application/x-protobuf")
	}))
	tb.Cleanup(server.Close)
	o.url = server.URL
	return o
}

func (o *otlp) take(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &request); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			o.spans = append(o.spans, scope.GetSpans()...)
		}
	}
	return nil
}

// named returns the spans of a name, in the order in which they began.
func (o *otlp) named(name string) (out []*spans.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.GetName() == name {
			out = append(out, s)
		}
	}
	return out
}

// attributes returns a span's attributes as text.
func attributes(s *spans.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.GetAttributes() {
		if v := a.GetValue(); v.GetStringValue() != "" {
			out[a.GetKey()] = v.GetStringValue()
		} else {
			out[a.GetKey()] = v.String()
		}
	}
	return out
}

func to(o *otlp) func(*worker.Config) {
	return func(c *worker.Config) { c.OtlpEndpoint = o.url }
}

// TestTraceAcrossRedelivery hands a request from a worker that drains to another
// one: both attempts are below the client's span, and the second links to the first.
func TestTraceAcrossRedelivery(t *testing.T) {
	t.Parallel()
	o, server, backend := newOTLP(t), newServer(t), newGate()
	first := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, to(o))
	backend.set(true)
	defer backend.set(false)
	backend.allow(50)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 300}`), "Nats-Msg-Id", "traced0001",
		"traceparent", traceParent, "tracestate", "vendor=1")
	for nextFrame(t, out).Type != broker.FrameToken {
	}
	second := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, to(o))
	first.stop()
	first.HandBack()
	eventually(t, "the first worker hands back", func() bool { backend.allow(1); return first.Running() == 0 })
	first.wait(t)
	if n := len(o.named("request")); n != 1 {
		t.Fatalf("%d request spans after the drain", n)
	}
	if final := lastFrame(t, out); final.Attempt != 2 || len(final.Tokens) != 300 {
		t.Fatalf("final %+v", final)
	}
	second.stop()
	second.wait(t)
	attempts := o.named("request")
	if len(attempts) != 2 {
		t.Fatalf("%d request spans", len(attempts))
	}
	for i, s := range attempts {
		about := attributes(s)
		if hex.EncodeToString(s.GetTraceId()) != traceID || hex.EncodeToString(s.GetParentSpanId()) != parentID || s.GetTraceState() != "vendor=1" ||
			about["messaging.message.id"] != "traced0001" || about["cellmq.outcome"] != []string{"handed_back", "length"}[i] {
			t.Errorf("attempt %d: %v", i+1, s)
		}
		for name, parent := range map[string][]byte{"broker wait": s.GetSpanId(), "queue wait": s.GetSpanId(), "run": s.GetSpanId(), "final": s.GetSpanId()} {
			if n := childrenOf(o.named(name), parent); n != 1 {
				t.Errorf("attempt %d has %d spans %q", i+1, n, name)
			}
		}
	}
	for _, s := range o.named("run") {
		if about := attributes(s); about["cellmq.steps"] == "" || about["cellmq.steps"] == "int_value:0" {
			t.Errorf("run %v", about)
		}
		if n := childrenOf(o.named("frames"), s.GetSpanId()); n != 1 {
			t.Errorf("a run has %d spans of frames", n)
		}
	}
	if links := attempts[1].GetLinks(); len(attempts[0].GetLinks()) != 0 || len(links) != 1 || string(links[0].GetSpanId()) != string(attempts[0].GetSpanId()) {
		t.Errorf("links %v, want one to %x", links, attempts[0].GetSpanId())
	}
}

func childrenOf(of []*spans.Span, parent []byte) (n int) {
	for _, s := range of {
		if string(s.GetParentSpanId()) == string(parent) && s.GetStartTimeUnixNano() <= s.GetEndTimeUnixNano() {
			n++
		}
	}
	return n
}

// TestTraceContexts sends requests with and without a trace context, through the
// Go client too, and a malformed one: what is not sampled has no span, and what fails is an error.
func TestTraceContexts(t *testing.T) {
	t.Parallel()
	o, server := newOTLP(t), newServer(t)
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, to(o))
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	for id, parent := range map[string]string{"unsampled1": unsampled, "malformed1": "00-zz", "without001": ""} {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 2}`), "Nats-Msg-Id", id, "traceparent", parent)
		lastFrame(t, out)
	}
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "temperature": "hot"}`), "Nats-Msg-Id", "failing001", "traceparent", traceParent)
	lastFrame(t, out)
	client, err := broker.NewClient(nc, broker.ClientConfig{Name: "me2"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := trace.TraceIDFromHex(traceID)
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{7}, TraceFlags: trace.FlagsSampled}))
	two := 2
	s, err := client.Request(ctx, "endless", broker.RequestOptions{ID: "byclient01", Input: broker.Input{IDs: []int32{3}, IsIDs: true}, Params: broker.Params{MaxTokens: &two}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Final(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.wait(t)
	found := map[string]*spans.Span{}
	for _, s := range o.named("request") {
		found[attributes(s)["messaging.message.id"]] = s
	}
	if len(found) != 4 || found["unsampled1"] != nil {
		t.Fatalf("spans of %d requests: %v", len(found), found)
	}
	for _, id := range []string{"malformed1", "without001"} {
		if s := found[id]; len(s.GetParentSpanId()) != 0 || s.GetStatus().GetCode() == spans.Status_STATUS_CODE_ERROR {
			t.Errorf("%s: %v", id, s)
		}
	}
	if s := found["failing001"]; s.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR || s.GetStatus().GetMessage() != "bad_request" {
		t.Errorf("failing: %v", s.GetStatus())
	}
	if s := found["byclient01"]; hex.EncodeToString(s.GetTraceId()) != traceID || s.GetParentSpanId()[0] != 7 {
		t.Errorf("of the Go client: %v", s)
	}
}

// TestDeadCollector serves as ever while nobody, or somebody who never answers,
// takes the traces.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	mute, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }() // what waits in its backlog is never accepted
	server := newServer(t)
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, func(c *worker.Config) { c.OtlpEndpoint = "http://" + mute.Addr().String() })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	const requests = 600 // more than are sent at once
	for range requests {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 1}`), "traceparent", traceParent)
	}
	for range requests {
		if f := lastFrame(t, out); f.Type != broker.FrameFinal {
			t.Fatalf("frame %+v", f)
		}
	}
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
	if n := metric(t, w, `cellmq_requests_total{model="endless",outcome="length"}`); n != requests {
		t.Errorf("%v requests counted", n)
	}
	if n := metric(t, w, `cellmq_spans_total{outcome="dropped"}`); n == 0 || n > 6*requests {
		t.Errorf("%v spans were dropped", n)
	}
	began := time.Now()
	w.stop()
	w.wait(t)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the end took %v", took)
	}
}
