package deploytest_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// built is what kubectl apply -k would send.
type built struct {
	deployments  map[string]*apps.Deployment
	statefulSets map[string]*apps.StatefulSet
	services     map[string]*core.Service
	configMaps   map[string]*core.ConfigMap
	budgets      map[string]*policy.PodDisruptionBudget
	policies     map[string]*networking.NetworkPolicy
	monitors     map[string]*monitoring.ServiceMonitor
	rules        map[string]*monitoring.PrometheusRule
	namespaces   map[string]*core.Namespace
	accounts     map[string]*core.ServiceAccount
	scaled       map[string]map[string]any // ScaledObjects
}

// build runs kustomize on a directory of deploy/kubernetes and decodes what comes
// out strictly: an unknown or repeated field fails.
func build(t *testing.T, dir string) *built {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy/kubernetes", dir))
	if err != nil {
		t.Fatal(err)
	}
	b := &built{}
	for _, r := range resources.Resources() {
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		kind, name := r.GetGvk().String(), r.GetName()
		if kind != "Namespace.v1.[noGrp]" && r.GetNamespace() != "cellmq" {
			t.Errorf("%s %s is in namespace %q", kind, name, r.GetNamespace())
		}
		switch kind {
		case "Namespace.v1.[noGrp]":
			keep(t, &b.namespaces, name, content)
		case "ServiceAccount.v1.[noGrp]":
			keep(t, &b.accounts, name, content)
		case "Service.v1.[noGrp]":
			keep(t, &b.services, name, content)
		case "ConfigMap.v1.[noGrp]":
			keep(t, &b.configMaps, name, content)
		case "Deployment.v1.apps":
			keep(t, &b.deployments, name, content)
		case "StatefulSet.v1.apps":
			keep(t, &b.statefulSets, name, content)
		case "PodDisruptionBudget.v1.policy":
			keep(t, &b.budgets, name, content)
		case "NetworkPolicy.v1.networking.k8s.io":
			keep(t, &b.policies, name, content)
		case "ServiceMonitor.v1.monitoring.coreos.com":
			keep(t, &b.monitors, name, content)
		case "PrometheusRule.v1.monitoring.coreos.com":
			keep(t, &b.rules, name, content)
		case "ScaledObject.v1alpha1.keda.sh":
			object := map[string]any{}
			decode(t, name, content, &object)
			if b.scaled == nil {
				b.scaled = map[string]map[string]any{}
			}
			b.scaled[name] = object
		default:
			t.Errorf("%s %s: the test does not know its type", kind, name)
		}
	}
	return b
}

// keep decodes a manifest strictly into a map by name.
func keep[T any](t *testing.T, into *map[string]*T, name string, content []byte) {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(content, object); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if *into == nil {
		*into = map[string]*T{}
	}
	(*into)[name] = object
}

// TestSources wants every manifest to be decoded strictly before kustomize reads
// it, which drops repeated keys, and to be part of a kustomization.
func TestSources(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			if err := yaml.UnmarshalStrict(document, &map[string]any{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if base := filepath.Base(name); base != "kustomization.yaml" {
			list, err := os.ReadFile(filepath.Join(filepath.Dir(name), "kustomization.yaml"))
			if err != nil || !strings.Contains(string(list), "\n  - "+base+"\n") {
				t.Errorf("%s is in no kustomization (%v)", name, err)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the manifests that are made of other files")

// TestCopies wants the manifests that contain other files of deploy to be up to
// date: go test . -run TestCopies -update writes them.
func TestCopies(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{
		"base/nats-config.yaml":          natsConfig(t),
		"monitoring/prometheusrule.yaml": prometheusRule(t),
	} {
		path := filepath.Join(root, "deploy/kubernetes", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // everybody may read a manifest
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is out of date (%v): run go test . -run TestCopies -update", name, err)
		}
	}
}

// indented returns lines with that many spaces before those that are not empty.
func indented(content []byte, spaces int) string {
	var b strings.Builder
	for line := range strings.Lines(string(content)) {
		if line != "\n" {
			b.WriteString(strings.Repeat(" ", spaces))
		}
		b.WriteString(line)
	}
	return b.String()
}

func natsConfig(t *testing.T) []byte {
	t.Helper()
	return []byte("# deploy/nats.conf, which go test . -run TestCopies -update copies.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n" +
		"  name: nats-config\n  labels:\n    app.kubernetes.io/part-of: cellmq\ndata:\n  nats.conf: |\n" +
		indented(read(t, "deploy/nats.conf"), 4))
}

func prometheusRule(t *testing.T) []byte {
	t.Helper()
	var b strings.Builder
	b.WriteString("# The rules of deploy/prometheus, which go test . -run TestCopies -update copies.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: cellmq\n  labels:\n" +
		"    app.kubernetes.io/part-of: cellmq\nspec:\n  groups:\n")
	for _, name := range []string{"recording.rules.yml", "alerts.rules.yml"} {
		_, groups, found := bytes.Cut(read(t, "deploy/prometheus/"+name), []byte("\ngroups:\n"))
		if !found {
			t.Fatalf("%s has no groups", name)
		}
		b.WriteString(indented(groups, 2))
	}
	return []byte(b.String())
}

// TestPrometheusRule wants the copy to be the rules.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	spec := build(t, "monitoring").rules["cellmq"].Spec
	want := len(rules(t, "recording.rules.yml")) + len(rules(t, "alerts.rules.yml"))
	n := 0
	for _, g := range spec.Groups {
		n += len(g.Rules)
	}
	if n != want {
		t.Errorf("%d rules, want %d", n, want)
	}
}
