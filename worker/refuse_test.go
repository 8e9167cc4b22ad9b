package worker_test

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// TestFailedVersionKeepsTheOld deploys versions that cannot be served, beside one
// that is: each is refused with a reason that says what is wrong, and the old one
// goes on.
func TestFailedVersionKeepsTheOld(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := startServing(t, server, func(cfg *worker.Config) { cfg.ModelBytes = 400_000 })
	s := newShop(t, server)
	s.pushLetters("m", "1")
	s.deploy("m", "1")
	c := newBuyer(t, connect(t, server), "me")
	eventually(t, "version 1 serves", func() bool { return c.ask("rt", "m", "a", 1).Final != nil })
	for _, tt := range []struct {
		name  string
		spoil func(version string) fstest.MapFS
		want  []string // in the reason
	}{
		{"flipped", func(v string) fstest.MapFS {
			files := spelling(t, v, "axyz")
			b := files["model.safetensors"].Data
			b[len(b)-4] ^= 1
			return files
		}, []string{"weights_sha256"}},
		{"truncated", func(v string) fstest.MapFS {
			files := spelling(t, v, "axyz")
			f := files["model.safetensors"]
			f.Data = f.Data[:len(f.Data)-8]
			return files
		}, []string{"safetensors"}},
		{"shape", func(v string) fstest.MapFS {
			return spoilt(t, v, func(v *safetensors.Values) { v.Shape, v.Data = []int{16, 5}, make([]float32, 16*5) })
		}, []string{"rnn.weight_hh_l0", "[16 5]", "[16 4]"}},
		{"nan", func(v string) fstest.MapFS {
			return spoilt(t, v, func(v *safetensors.Values) { v.Data[3] = float32(math.NaN()) })
		}, []string{"numerical error"}},
		{"hostile", func(v string) fstest.MapFS {
			files := spelling(t, v, "axyz")
			files["model.safetensors"].Data = []byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}")
			return files
		}, []string{"safetensors"}},
		{"large", func(v string) fstest.MapFS {
			text := []byte("a")
			for b := byte('b'); b < 127; b++ {
				text = append(text, b)
			}
			for b := byte(33); b < 'a'; b++ {
				text = append(text, b)
			}
			return spelling(t, v, string(text))
		}, []string{"memory budget", "400000"}},
	} {
		files := tt.spoil(tt.name)
		s.push("m", tt.name, files)
		s.begin("m", tt.name, registry.Options{Canary: registry.Whole})
		d := s.settled("m")
		if d.Active != s.ref("m", "1") || !d.Refuses(s.ref("m", tt.name)) {
			t.Errorf("%s: active %v, refused %v", tt.name, d.Active, d.Refused)
		}
		for _, want := range tt.want {
			if !strings.Contains(d.Reason, want) {
				t.Errorf("%s: reason %q, want %q in it", tt.name, d.Reason, want)
			}
		}
		if v := s.reported("m", tt.name, "failed"); !strings.Contains(v.Reason, tt.want[0]) {
			t.Errorf("%s: reported %q, want %q in it", tt.name, v.Reason, tt.want[0])
		}
		t.Logf("%s: %s", tt.name, d.Reason)
		for _, path := range []string{"req", "rt"} {
			if v := c.spell(path, "m", letters); v != "1" {
				t.Errorf("%s: version %q serves", tt.name, v)
			}
		}
	}
	text := metrics(t, w)
	for _, want := range []string{
		`cellmq_model_info{digest="` + s.ref("m", "1").Digest + `",model="m",state="live",version="1",weights="f32"} 1`, `cellmq_deployments_total{model="m",result="refused"} 6`,
		`cellmq_model_failed{model="m",version="large"} 1`, `cellmq_model_loads_total{model="m",result="failed"} 6`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestFailedVersionOfALiveName deploys a version that cannot be served and has the
// name of the worker's own: the metric tells of it, and the own one serves.
func TestFailedVersionOfALiveName(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := startServing(t, server, nil)
	s := newShop(t, server)
	s.push("own", "1", spoilt(t, "1", func(v *safetensors.Values) { v.Data[3] = float32(math.NaN()) }))
	s.begin("own", "1", registry.Options{Canary: registry.Whole})
	if d := s.settled("own"); !d.Refuses(s.ref("own", "1")) {
		t.Errorf("refused %v", d.Refused)
	}
	s.reported("own", "1", "failed")
	text := metrics(t, w)
	for _, want := range []string{`cellmq_model_failed{model="own",version="1"} 1`, `cellmq_model_bytes{kind="weights",model="own",version="1"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if v := newBuyer(t, connect(t, server), "me").ask("rt", "own", "a", 1); v.Final == nil {
		t.Errorf("the worker's own version answers %+v", v)
	}
}

// spoilt is the directory of a speller with a matrix changed.
func spoilt(t *testing.T, version string, change func(v *safetensors.Values)) fstest.MapFS {
	t.Helper()
	const text = "axyz"
	config, tensors := spellerParts(text, version)
	for i := range tensors {
		if tensors[i].Name == "rnn.weight_hh_l0" {
			change(&tensors[i])
		}
	}
	return speltWith(t, config, text, tensors)
}
