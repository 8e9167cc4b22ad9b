package deploytest_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/worker"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// worked returns the worker's Deployment and its container's environment.
func worked(t *testing.T, b *built) (core.PodSpec, map[string]string) {
	t.Helper()
	spec := b.deployments["cellmq"].Spec.Template.Spec
	env := map[string]string{}
	for _, e := range spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	return spec, env
}

// TestWorkerManifest wants the worker's settings to exist and to be accepted, and
// what Kubernetes does to agree with them.
func TestWorkerManifest(t *testing.T) {
	t.Parallel()
	b := build(t, "base")
	spec, env := worked(t, b)
	settings := map[string]bool{}
	for _, s := range worker.Settings() {
		settings[s.Variable] = true
	}
	for name := range env {
		if strings.HasPrefix(name, worker.EnvPrefix) && !settings[name] {
			t.Errorf("no setting is called %s", name)
		}
	}
	grace, err := time.ParseDuration(env["CELLMQ_GRACE"])
	if have := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second; err != nil || have < grace+10*time.Second {
		t.Errorf("pods get %v to end, which is not 10 s more than CELLMQ_GRACE %v (%v)", have, grace, err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(env["CELLMQ_NATS_URL"], "nats://"), ":")
	if s := b.services[host]; s == nil || !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return strconv.Itoa(int(p.Port)) == port }) {
		t.Errorf("CELLMQ_NATS_URL %s names no service and port", env["CELLMQ_NATS_URL"])
	}
	_, admin, _ := strings.Cut(env["CELLMQ_ADMIN_ADDRESS"], ":")
	if p := spec.Containers[0].Ports[0]; p.Name != "admin" || strconv.Itoa(int(p.ContainerPort)) != admin {
		t.Errorf("port %v, but CELLMQ_ADMIN_ADDRESS %s", p, env["CELLMQ_ADMIN_ADDRESS"])
	}
	executors, _ := strconv.Atoi(env["CELLMQ_EXECUTORS"])
	threads, _ := strconv.Atoi(env["CELLMQ_THREADS"])
	cores := spec.Containers[0].Resources.Requests.Cpu().Value()
	if cores <= int64(executors*threads) || strconv.FormatInt(cores, 10) != env["GOMAXPROCS"] {
		t.Errorf("%d cores for %d executors of %d threads and the rest, GOMAXPROCS %s", cores, executors, threads, env["GOMAXPROCS"])
	}
	bounded(t, spec, env)
	if *spec.EnableServiceLinks {
		t.Error("service links make variables that the worker takes for settings")
	}
	for name := range b.deployments["cellmq"].Spec.Template.Annotations {
		if name == "prometheus.io/port" && b.deployments["cellmq"].Spec.Template.Annotations[name] != admin {
			t.Error("the annotation names another port")
		}
	}
}

// bounded wants what the worker keeps in memory and on its disk to have room there.
func bounded(t *testing.T, spec core.PodSpec, env map[string]string) {
	t.Helper()
	memory := spec.Containers[0].Resources.Limits.Memory().Value()
	limit, err := resource.ParseQuantity(strings.TrimSuffix(env["GOMEMLIMIT"], "B"))
	if err != nil || limit.Value() > memory*9/10 {
		t.Errorf("GOMEMLIMIT %s of %d bytes (%v)", env["GOMEMLIMIT"], memory, err)
	}
	models, err := strconv.ParseInt(env["CELLMQ_MODEL_BYTES"], 10, 64)
	if err != nil || models > memory-256<<20 {
		t.Errorf("CELLMQ_MODEL_BYTES %d of %d bytes (%v)", models, memory, err)
	}
	cache, err := strconv.ParseInt(env["CELLMQ_CACHE_BYTES"], 10, 64)
	at := slices.IndexFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == "data" })
	if err != nil || at < 0 || spec.Volumes[at].EmptyDir.SizeLimit.Value() <= cache {
		t.Errorf("CELLMQ_CACHE_BYTES %d does not fit into the volume (%v)", cache, err)
	}
}

// pods returns the pod templates of a build by name.
func pods(b *built) map[string]core.PodTemplateSpec {
	out := map[string]core.PodTemplateSpec{}
	for name, d := range b.deployments {
		out[name] = d.Spec.Template
	}
	for name, s := range b.statefulSets {
		out[name] = s.Spec.Template
	}
	return out
}

// TestPodsAreConfined wants every container to run as nobody, with nothing to
// write to but its volumes, within bounds, and to be probed.
func TestPodsAreConfined(t *testing.T) {
	t.Parallel()
	all := pods(build(t, "base"))
	if len(all) != 2 {
		t.Fatalf("pods %v", slices.Collect(maps.Keys(all)))
	}
	for name, pod := range all {
		s := pod.Spec
		if p := s.SecurityContext; p == nil || !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: security context %v", name, p)
		}
		if *s.AutomountServiceAccountToken || s.HostNetwork || s.HostPID || s.HostIPC {
			t.Errorf("%s has more of its host or cluster than it needs", name)
		}
		for _, c := range s.Containers {
			p := c.SecurityContext
			if p == nil || *p.AllowPrivilegeEscalation || !*p.ReadOnlyRootFilesystem || p.Privileged != nil ||
				!slices.Equal(p.Capabilities.Drop, []core.Capability{"ALL"}) || len(p.Capabilities.Add) > 0 {
				t.Errorf("%s: security context %v", c.Name, p)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("%s: resources %v", c.Name, c.Resources)
			}
			ports := map[string]bool{}
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, probe := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.StrVal] {
					t.Errorf("%s: probe %v", c.Name, probe)
				}
			}
			mounts(t, name, pod.Spec, c, claims(build(t, "base"), name))
		}
	}
}

func claims(b *built, name string) []string {
	var out []string
	if s := b.statefulSets[name]; s != nil {
		for _, c := range s.Spec.VolumeClaimTemplates {
			out = append(out, c.Name)
		}
	}
	return out
}

// mounts wants a container to mount each volume, and no other.
func mounts(t *testing.T, name string, spec core.PodSpec, c core.Container, claims []string) {
	t.Helper()
	have := slices.Clone(claims)
	for _, v := range spec.Volumes {
		have = append(have, v.Name)
	}
	var want []string
	for _, m := range c.VolumeMounts {
		want = append(want, m.Name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("%s has volumes %v and mounts %v", name, have, want)
	}
}

// TestSelectors wants every selector to select pods, and every named port to be a
// port of theirs.
func TestSelectors(t *testing.T) {
	t.Parallel()
	b := build(t, "base")
	all := pods(b)
	for name, d := range b.deployments {
		selected(t, name, all, d.Spec.Selector)
	}
	for name, s := range b.statefulSets {
		selected(t, name, all, s.Spec.Selector)
		if b.services[s.Spec.ServiceName] == nil {
			t.Errorf("%s: no service %s", name, s.Spec.ServiceName)
		}
	}
	for name, p := range b.budgets {
		selected(t, name, all, p.Spec.Selector)
	}
	for _, c := range b.deployments["cellmq"].Spec.Template.Spec.TopologySpreadConstraints {
		selected(t, c.TopologyKey, all, c.LabelSelector)
	}
	for name, s := range b.services {
		found := selected(t, name, all, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			ported(t, name, found, p.TargetPort)
		}
	}
	for name, p := range b.policies {
		if name == "default-deny" {
			continue
		}
		found := selected(t, name, all, &p.Spec.PodSelector)
		for _, rule := range p.Spec.Ingress {
			policed(t, name, found, rule.Ports)
		}
		for _, rule := range p.Spec.Egress {
			for _, to := range rule.To {
				if to.NamespaceSelector == nil {
					policed(t, name, selected(t, name, all, to.PodSelector), rule.Ports)
				}
			}
		}
	}
	monitor := build(t, "monitoring").monitors["cellmq"]
	service := b.services["cellmq"]
	if selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector); err != nil || !selector.Matches(labels.Set(service.Labels)) {
		t.Errorf("the monitor does not select the service (%v)", err)
	}
	if monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || service.Labels[monitor.Spec.JobLabel] != "cellmq" {
		t.Error("the monitor names another port or job")
	}
}

// selected returns the pods that a selector selects, and fails when it selects none.
func selected(t *testing.T, where string, all map[string]core.PodTemplateSpec, s *meta.LabelSelector) []core.PodTemplateSpec {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	var out []core.PodTemplateSpec
	for _, p := range all {
		if selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	if len(out) != 1 {
		t.Errorf("%s selects %d pods with %v", where, len(out), selector)
	}
	return out
}

func policed(t *testing.T, where string, found []core.PodTemplateSpec, ports []networking.NetworkPolicyPort) {
	t.Helper()
	for _, p := range ports {
		ported(t, where, found, *p.Port)
	}
}

// ported wants a port, by name, to be one of the pods'.
func ported(t *testing.T, where string, found []core.PodTemplateSpec, port intstr.IntOrString) {
	t.Helper()
	for _, pod := range found {
		if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == port.StrVal }) {
			t.Errorf("%s: %s has no port %s", where, pod.Spec.Containers[0].Name, port.String())
		}
	}
}
