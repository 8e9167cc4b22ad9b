package deploytest_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// compose is what is read of the compose file.
type compose struct {
	Services map[string]struct {
		Image       string         `json:"image"`
		ReadOnly    bool           `json:"read_only"`
		Privileged  bool           `json:"privileged"`
		CapDrop     []string       `json:"cap_drop"`
		CapAdd      []string       `json:"cap_add"`
		SecurityOpt []string       `json:"security_opt"`
		Restart     string         `json:"restart"`
		CPUs        float64        `json:"cpus"`
		MemLimit    string         `json:"mem_limit"`
		PidsLimit   int            `json:"pids_limit"`
		Healthcheck map[string]any `json:"healthcheck"`
		Profiles    []string       `json:"profiles"`
		Ports       []string       `json:"ports"`
		Volumes     []string       `json:"volumes"`
		Environment map[string]any `json:"environment"`
	} `json:"services"`
	Volumes map[string]any `json:"volumes"`
}

// TestCompose wants every service of the compose file to be confined, bounded and
// watched, and its ports to be open to this machine only.
func TestCompose(t *testing.T) {
	t.Parallel()
	var c compose
	decode(t, "docker-compose.yml", read(t, "docker-compose.yml"), &c)
	once := []string{"client", "load"}
	alone := []string{"jaeger"} // restarts, but nobody waits for it, and its image may have no program to ask it with
	want := []string{"client", "grafana", "jaeger", "load", "nats", "prometheus", "worker-a", "worker-b"}
	if names := slices.Sorted(maps.Keys(c.Services)); !slices.Equal(names, want) {
		t.Fatalf("services %v, want %v", names, want)
	}
	for name, s := range c.Services {
		if !s.ReadOnly || s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined", name)
		}
		if s.CPUs == 0 || s.MemLimit == "" || s.PidsLimit == 0 {
			t.Errorf("%s is not bounded", name)
		}
		if !slices.Contains(once, name) && (s.Restart != "unless-stopped" || s.Healthcheck == nil && !slices.Contains(alone, name)) {
			t.Errorf("%s is not watched", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s opens %s to everybody", name, p)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, ok := c.Volumes[source]; !ok && (!strings.HasPrefix(source, "./") || !strings.HasSuffix(v, ":ro")) {
				t.Errorf("%s: volume %s does not exist, or a file of the repository can be written", name, v)
			}
		}
	}
}

// TestComposeFits wants Prometheus to scrape the workers of the compose file and to
// be of the version whose engine the other tests use, and Grafana to find
// Prometheus and the dashboard.
func TestComposeFits(t *testing.T) {
	t.Parallel()
	var c compose
	decode(t, "docker-compose.yml", read(t, "docker-compose.yml"), &c)
	var config struct {
		Rules   []string `json:"rule_files"`
		Scrapes []struct {
			Job    string `json:"job_name"`
			Static []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	decode(t, "prometheus.yml", read(t, "deploy/prometheus/prometheus.yml"), &config)
	if s := config.Scrapes; len(s) != 1 || s[0].Job != "cellmq" || !slices.Equal(s[0].Static[0].Targets, []string{"worker-a:9464", "worker-b:9464"}) {
		t.Errorf("scrapes %v", s)
	}
	for _, name := range config.Rules {
		read(t, "deploy/prometheus/"+strings.TrimPrefix(name, "/etc/prometheus/"))
	}
	required := regexp.MustCompile(`prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)`).FindStringSubmatch(string(read(t, "internal/deploytest/go.mod")))
	if required == nil {
		t.Fatal("go.mod requires no Prometheus")
	}
	if want := "prom/prometheus:v" + required[1] + "." + strings.TrimPrefix(required[2], "0") + "." + required[3]; !strings.Contains(c.Services["prometheus"].Image, want) {
		t.Errorf("the compose file runs %s, the tests use %s", c.Services["prometheus"].Image, want)
	}
	var sources struct {
		Sources []struct {
			UID string `json:"uid"`
			URL string `json:"url"`
		} `json:"datasources"`
	}
	decode(t, "datasources", read(t, "deploy/grafana/provisioning/datasources/prometheus.yml"), &sources)
	if s := sources.Sources; len(s) != 1 || s[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources %v", s)
	}
	var providers struct {
		Providers []struct {
			Options struct {
				Path string `json:"path"`
			} `json:"options"`
		} `json:"providers"`
	}
	decode(t, "dashboards", read(t, "deploy/grafana/provisioning/dashboards/cellmq.yml"), &providers)
	if !slices.Contains(c.Services["grafana"].Volumes, "./deploy/grafana/dashboards:"+providers.Providers[0].Options.Path+":ro") {
		t.Errorf("Grafana looks for dashboards in %s", providers.Providers[0].Options.Path)
	}
}
