package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

// as is the registry for a user of a server with permissions.
func as(t *testing.T, s *brokertest.SecureT, user string, opts ...nats.Option) *bench {
	t.Helper()
	opts = append(opts, s.Key(t, user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	nc, err := broker.Dial(t.Context(), s.URL(), user, nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.New(registry.Config{Conn: nc, Stale: stale})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{server: s.Server, nc: nc, js: js, Registry: r}
}

// denied wants the server not to let the user publish or subscribe to a subject.
func (b *bench) denied(t *testing.T, verb, subject string) {
	t.Helper()
	var err error
	if verb == "Subscription" {
		var sub *nats.Subscription
		if sub, err = b.nc.SubscribeSync(subject); err == nil {
			defer func() { _ = sub.Unsubscribe() }() // the server has none
		}
	} else {
		err = b.nc.Publish(subject, []byte("{}"))
	}
	if err == nil {
		err = b.nc.Flush() // a refusal comes before the answer
	}
	if err != nil {
		t.Fatal(err)
	}
	err = b.nc.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), fmt.Sprintf("%s to %q", verb, subject)) {
		t.Errorf("%s to %s: the server says %v", verb, subject, err)
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *brokertest.SecureT{"permissions": brokertest.Secure, "accounts": brokertest.Accounts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			permissions(t, start(t))
		})
	}
}

func permissions(t *testing.T, s *brokertest.SecureT) {
	t.Helper()
	operator := as(t, s, "operator")
	worker := as(t, s, "worker", nats.CustomInboxPrefix("_INBOX_cellmq.w1"))
	files := dir(map[string][]byte{"config.json": []byte("{}"), "model.safetensors": random(7, registry.PartBytes+100)})
	if err := operator.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := operator.push(t, version("m", "1"), files)
	operator.begin(t, registry.Undeployed("m"), "a")

	worker.fetch(t, m, files)
	flipped, err := worker.deployed(t, "m").Rollback("a worker's reason", "w1")
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Write(t.Context(), flipped); err != nil {
		t.Errorf("a worker moves a deployment on: %v", err)
	}
	if err := worker.Report(t.Context(), registry.Report{Worker: "w1"}); err != nil {
		t.Errorf("a worker reports: %v", err)
	}
	if all, err := worker.Reports(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("a worker reads reports: %v, %v", all, err)
	}
	if all, err := operator.Reports(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("an operator reads reports: %v, %v", all, err)
	}
	if all, err := worker.Versions(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("a worker reads versions: %v, %v", all, err)
	}
	if err := worker.nc.LastError(); err != nil {
		t.Errorf("a worker lacks a permission: %v", err)
	}
	store := operator.object(t, m.Files[0].Parts[0])
	for _, subject := range []string{
		versionSubject("m", "2"), versionSubject("m", "1"), "$KV.CELLMQ_MODELS.lock",
		"$O.CELLMQ_MODELS.C." + store.NUID, metaSubject(store.Name), metaSubject(sum(nil)),
		"$JS.API.STREAM.PURGE." + storeStream, "$JS.API.STREAM.DELETE." + recordStream,
		"$JS.API.STREAM.MSG.DELETE." + recordStream, "$JS.API.STREAM.UPDATE." + storeStream,
	} {
		worker.denied(t, "Publish", subject)
	}
	for name, call := range map[string]func(context.Context) error{
		"push":   func(ctx context.Context) error { _, err := worker.Push(ctx, files, version("m", "2"), nil); return err },
		"delete": func(ctx context.Context) error { return worker.Delete(ctx, "m", "1") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); err == nil {
			t.Errorf("%s by a worker: no error", name)
		}
		cancel()
	}
	clientGetsNothing(t, s, m)

	if got, err := operator.Version(t.Context(), "m", "1"); err != nil || got.Digest != m.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	pinned, err := operator.deployed(t, "m").Pin(true)
	if err == nil {
		err = operator.Write(t.Context(), pinned)
	}
	if err != nil {
		t.Errorf("an operator pins: %v", err)
	}
	target := filepath.Join(t.TempDir(), "pulled")
	if err := operator.Fetch(t.Context(), m, target, nil); err != nil {
		t.Errorf("an operator fetches: %v", err)
	}
	if _, err := os.Stat(target); err != nil {
		t.Error(err)
	}
	if err := operator.nc.LastError(); err != nil {
		t.Errorf("an operator lacks a permission: %v", err)
	}
}

// clientGetsNothing has a client try all that reads or changes what the registry
// keeps.
func clientGetsNothing(t *testing.T, s *brokertest.SecureT, m *registry.Manifest) {
	t.Helper()
	client := as(t, s, "c1", broker.OwnInbox("infer", "c1"))
	for _, subject := range []string{
		versionSubject("m", "1"), "$KV.CELLMQ_MODELS.deploy.m", "$KV.CELLMQ_WORKERS.w1", metaSubject(m.Files[0].Parts[0]), "$O.CELLMQ_MODELS.C.x",
		"$JS.API.DIRECT.GET.KV_CELLMQ_MODELS.$KV.CELLMQ_MODELS.deploy.m", "$JS.API.DIRECT.GET.KV_CELLMQ_MODELS", "$JS.API.DIRECT.GET.KV_CELLMQ_WORKERS",
		"$JS.API.DIRECT.GET." + storeStream, "$JS.API.STREAM.INFO." + storeStream, "$JS.API.STREAM.INFO." + recordStream,
		"$JS.API.STREAM.MSG.GET." + recordStream, "$JS.API.CONSUMER.CREATE." + storeStream + ".x", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.PURGE." + storeStream,
	} {
		client.denied(t, "Publish", subject)
	}
	for _, subject := range []string{"$KV.>", "$O.>", "$KV.CELLMQ_MODELS.deploy.*", "$KV.CELLMQ_WORKERS.*", "$JS.API.>", "_INBOX_cellmq.>", "_INBOX.>", ">"} {
		client.denied(t, "Subscription", subject)
	}
}

// TestReceiptOnTheRegistry has c1 name a deployment, a report and a part as the
// reply of a durable request. With permissions alone the receipts get there and
// count as nothing, with accounts they do not.
func TestReceiptOnTheRegistry(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *brokertest.SecureT{"permissions": brokertest.Secure, "accounts": brokertest.Accounts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receipts(t, start(t), name == "permissions")
		})
	}
}

func receipts(t *testing.T, s *brokertest.SecureT, arrive bool) {
	t.Helper()
	operator, client := as(t, s, "operator"), as(t, s, "c1", broker.OwnInbox("infer", "c1"))
	conn, err := broker.Connect(t.Context(), broker.Config{URL: s.URL(), Inbox: "_INBOX_cellmq.w1", Options: []nats.Option{s.Key(t, "worker")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	if err := conn.EnsureStreams(t.Context(), []string{"m"}); err != nil {
		t.Fatal(err)
	}
	files := dir(map[string][]byte{"config.json": []byte("{}")})
	if err := operator.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := operator.push(t, version("m", "1"), files)
	operator.begin(t, registry.Undeployed("m"), "a")
	before := operator.deployed(t, "m")
	for _, reply := range []string{deploySubject("m"), versionSubject("m", "1"), "$KV.CELLMQ_WORKERS.w1", "$KV.CELLMQ_MODELS.lock", metaSubject(m.Files[0].Parts[0])} {
		if err := client.nc.PublishMsg(&nats.Msg{Subject: "infer.req.m.std.c1", Reply: reply, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	// The stream takes one after the other.
	if _, err := client.nc.Request("infer.req.m.std.c1", []byte("x"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := operator.messages(t, recordStream, deploySubject("m")); arrive != (n > 1) {
		t.Errorf("%d records of the deployment", n)
	}
	if d := operator.deployed(t, "m"); d.Rule() != before.Rule() || d.Next != before.Next {
		t.Errorf("%+v, before %+v", d, before)
	}
	if all, err := operator.Reports(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if got, err := operator.Version(t.Context(), "m", "1"); err != nil || got.Digest != m.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	operator.push(t, version("m", "1"), files) // puts the part again
	operator.fetch(t, m, files)
}
