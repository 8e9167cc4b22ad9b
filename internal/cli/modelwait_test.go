package cli_test

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/registry"
)

// TestModelUnreadableDeployment begins anew where others wrote over the record.
func TestModelUnreadableDeployment(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "pushed", "")
	s.put(t, "deploy.trees", `{"stream":"INFER","seq":7}`)
	s.run(t, "list").want(t, 0, "trees", `cannot be read: ["trees"]`)
	s.run(t, "deploy", "trees@1", "--no-wait").want(t, 1, "", "--anew")
	s.run(t, "rollback", "trees").want(t, 1, "", "'cellmq model undeploy NAME --anew' ends it")
	s.run(t, "delete", "trees@1").want(t, 1, "", "cannot be read: [\"trees\"] ('cellmq model deploy NAME@VERSION --anew'")
	s.run(t, "deploy", "trees@1", "--no-wait", "--anew").want(t, 0, "1 is loaded", "")

	for _, key := range []string{"deploy.made-up", "deploy.made-up-too", "deploy.No_Model"} {
		s.put(t, key, `{"stream":"INFER","seq":7}`)
	}
	s.put(t, "deploy.later", `{"format":2}`)
	s.run(t, "undeploy", "made-up").want(t, 1, "", "cannot be read")
	s.run(t, "undeploy", "made-up", "--anew").want(t, 0, "each worker's own serves", "")
	s.run(t, "delete", "--unused").want(t, 0, " freed\n", "deployments of no model removed")
	s.run(t, "list").want(t, 0, "trees", `deployments of 1 models cannot be read: ["later"]`)
	s.run(t, "undeploy", "later", "--anew").want(t, 0, "each worker's own serves", "")
	if r := s.run(t, "list"); r.err != "" {
		t.Errorf("%s", r.err)
	}
}

// TestModelThird waits for a worker that has two other versions in memory, for as
// long as it is told to.
func TestModelThird(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "pushed", "")
	s.report(t, "trees", registry.Ref{Version: "8", Digest: strings.Repeat("8", 64)}, registry.Ref{Version: "9", Digest: strings.Repeat("9", 64)})
	if r := s.run(t, "show", "trees"); strings.Contains(r.out, "two versions are live") {
		t.Errorf("a live version has the reason of another state:\n%s", r.out)
	}
	const why = "deploy trees: worker w1 has 8 (888888888888) and 9 (999999999999): two versions are live"
	s.run(t, "deploy", "trees@1").want(t, 1, "", "cellmq: "+why+" (--timeout waits")
	s.run(t, "deploy", "trees@1", "--no-wait").want(t, 1, "", why)
	r := s.run(t, "deploy", "trees@1", "--timeout", "1s")
	r.want(t, 1, "", "trees: waiting: "+why+"\n")
	r.want(t, 1, "", "cellmq: the time of --timeout is over: "+why+"\n")
	p := launch(t, "model", "deploy", "trees@1", "--nats-url", s.url, "--timeout", "1m", "--watch", "0")
	p.says(t, "waiting: "+why)
	s.report(t, "trees")
	p.says(t, "trees: loading: 0 of 1 workers have it, w1: has not begun")
	s.serve(t, "trees")
	p.ends(t)
	s.run(t, "undeploy", "trees").want(t, 0, "own serves", "")
}

// TestModelTimeout leaves the deployment when the time is over.
func TestModelTimeout(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "pushed", "")
	r := s.run(t, "deploy", "trees@1", "--timeout", "1s")
	r.want(t, 1, "", "the time of --timeout is over, the deployment of trees goes on")
	if strings.Count(r.err, "--timeout") != 1 {
		t.Errorf("says more than once that the time is over:\n%s", r.err)
	}
	s.run(t, "show", "trees").want(t, 0, "loading: each worker's own serves, 1 is loaded", "")
}

// TestModelDeleteWaits deletes a version that a worker still has in memory, though
// nothing deploys it any more.
func TestModelDeleteWaits(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "pushed", "")
	m := decoded[shownModel](t, s.run(t, "show", "trees@1", "--json").out)
	s.report(t, "trees", registry.Ref{Version: "1", Digest: m.Versions[0].Digest})
	const why = "delete trees@1: workers w1 "
	s.run(t, "delete", "trees@1", "--no-wait").want(t, 1, "", "version is in use ('cellmq model show'")
	r := s.run(t, "delete", "trees@1", "--timeout", "1s")
	r.want(t, 1, "", "trees: waiting: "+why)
	r.want(t, 1, "", "cellmq: the time of --timeout is over: "+why)
	if n := strings.Count(r.err, "waiting"); n != 1 {
		t.Errorf("it says %d times that it waits", n)
	}
	s.run(t, "delete", "trees@1", "--no-wait", "--timeout", "1s").want(t, 2, "", "--timeout 1s: only without --no-wait")
	for _, timeout := range []string{"0", "-1s"} {
		s.run(t, "delete", "trees@1", "--timeout", timeout).want(t, 2, "", "--timeout")
	}
	p := launch(t, "model", "delete", "trees@1", "--nats-url", s.url)
	p.says(t, "waiting: "+why)
	s.report(t, "trees")
	p.ends(t)
	s.run(t, "list").want(t, 0, "", "no versions")
}
