package worker_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/worker"
)

// update rewrites the generated parts of documents: go test ./worker -update.
var update = flag.Bool("update", false, "rewrite generated parts of documents")

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := worker.DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesVariableValueAndBound(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(*worker.Config)
		want   []string
	}{
		{"slots", func(c *worker.Config) { c.Slots = 0 }, []string{"CELLMQ_SLOTS is 0", "between 1 and 65536"}},
		{"realtime slots", func(c *worker.Config) { c.RealtimeSlots = -1 }, []string{"CELLMQ_REALTIME_SLOTS is -1"}},
		{"port", func(c *worker.Config) { c.EmbeddedPort = 65536 }, []string{"CELLMQ_EMBEDDED_PORT is 65536", "-1 and 65535"}},
		{"websocket port", func(c *worker.Config) { c.EmbeddedWebsocketPort = -2 }, []string{"CELLMQ_EMBEDDED_WEBSOCKET_PORT is -2"}},
		{"same port", func(c *worker.Config) { c.EmbeddedWebsocketPort = 4222 }, []string{"CELLMQ_EMBEDDED_WEBSOCKET_PORT is 4222", "CELLMQ_EMBEDDED_PORT"}},
		{"replicas", func(c *worker.Config) { c.Replicas = 6 }, []string{"CELLMQ_REPLICAS is 6", "1 and 5"}},
		{"two identities", func(c *worker.Config) { c.NatsNkey, c.NatsCredentials = "a", "b" }, []string{"CELLMQ_NATS_NKEY is a", "CELLMQ_NATS_CREDENTIALS"}},
		{"certificate", func(c *worker.Config) { c.NatsCert = "a.pem" }, []string{"CELLMQ_NATS_CERT", "CELLMQ_NATS_KEY"}},
		{"key", func(c *worker.Config) { c.NatsKey = "a.pem" }, []string{"CELLMQ_NATS_CERT", "CELLMQ_NATS_KEY"}},
		{"host", func(c *worker.Config) { c.EmbeddedHost = "" }, []string{"CELLMQ_EMBEDDED_HOST"}},
		{"ack wait", func(c *worker.Config) { c.AckWait = time.Millisecond }, []string{"CELLMQ_ACK_WAIT is 1ms", "100ms"}},
		{"url", func(c *worker.Config) { c.NatsURL = "http://u:secret@h" }, []string{"CELLMQ_NATS_URL is http://...", "nats://"}},
		{"prefix", func(c *worker.Config) { c.SubjectPrefix = "a.b" }, []string{"CELLMQ_SUBJECT_PREFIX", `"a.b"`}},
		{"name", func(c *worker.Config) { c.Name = "a b" }, []string{"CELLMQ_NAME", `"a b"`}},
		{"models", func(c *worker.Config) { c.Models = []string{"ok", "No"} }, []string{"CELLMQ_MODELS", `"No"`}},
		{"model dirs", func(c *worker.Config) { c.ModelDirs = []string{""} }, []string{"CELLMQ_MODEL_DIRS"}},
		{"weight type", func(c *worker.Config) { c.Weights = []string{"int8", "g2p-en=int4"} }, []string{`CELLMQ_WEIGHTS has "g2p-en=int4"`, "f32, bf16 or int8"}},
		{"weights of no model", func(c *worker.Config) { c.Weights = []string{"=int8"} }, []string{`CELLMQ_WEIGHTS has "=int8"`, "a model's name"}},
		{"empty weight type", func(c *worker.Config) { c.Weights = []string{"int8", ""} }, []string{`CELLMQ_WEIGHTS has ""`}},
		{"two weight types", func(c *worker.Config) { c.Weights = []string{"int8", "bf16"} }, []string{`CELLMQ_WEIGHTS has "bf16"`, "two entries"}},
		{"two weight types of a model", func(c *worker.Config) { c.Weights = []string{"a=int8", "f32", "a=int8"} }, []string{`CELLMQ_WEIGHTS has "a=int8"`, "two entries"}},
		{"instructions", func(c *worker.Config) { c.ISA = "sse" }, []string{`CELLMQ_ISA is "sse"`, "one of empty, purego"}},
		{"rows", func(c *worker.Config) { c.MaxRows = 4097 }, []string{"CELLMQ_MAX_ROWS is 4097"}},
		{"executors", func(c *worker.Config) { c.Executors = 0 }, []string{"CELLMQ_EXECUTORS is 0"}},
		{"threads", func(c *worker.Config) { c.Threads = 257 }, []string{"CELLMQ_THREADS is 257", "1 and 256"}},
		{"profile", func(c *worker.Config) { c.Profile = time.Hour }, []string{"CELLMQ_PROFILE is 1h0m0s", "1m0s"}},
		{"frame interval", func(c *worker.Config) { c.FrameInterval = 2 * time.Second }, []string{"CELLMQ_FRAME_INTERVAL is 2s", "CELLMQ_HEARTBEAT"}},
		{"heartbeat", func(c *worker.Config) { c.Heartbeat = 0 }, []string{"CELLMQ_HEARTBEAT is 0s"}},
		{"grace", func(c *worker.Config) { c.Grace = -time.Second }, []string{"CELLMQ_GRACE is -1s"}},
		{"payload", func(c *worker.Config) { c.MaxPayload = 1 }, []string{"CELLMQ_MAX_PAYLOAD is 1"}},
		{"queue", func(c *worker.Config) { c.MaxQueued = 0 }, []string{"CELLMQ_MAX_QUEUED is 0"}},
		{"quota", func(c *worker.Config) { c.MaxQueuedPerClient = 0 }, []string{"CELLMQ_MAX_QUEUED_PER_CLIENT is 0"}},
		{"stores", func(c *worker.Config) { c.StoreBytes = 1 << 19 }, []string{"CELLMQ_STORE_BYTES is 524288"}},
		{"age", func(c *worker.Config) { c.MaxQueuedAge = 0 }, []string{"CELLMQ_MAX_QUEUED_AGE is 0s"}},
		{"attempts", func(c *worker.Config) { c.MaxAttempts = 0 }, []string{"CELLMQ_MAX_ATTEMPTS is 0"}},
		{"admin", func(c *worker.Config) { c.AdminAddress = "nonsense" }, []string{"CELLMQ_ADMIN_ADDRESS is nonsense"}},
		{"live", func(c *worker.Config) { c.LiveURL = "http://x" }, []string{"CELLMQ_LIVE_URL is http://x"}},
		{"live user", func(c *worker.Config) { c.LiveURL = "ws://me:secret@x" }, []string{"CELLMQ_LIVE_URL is ws://x"}},
		{"profiles", func(c *worker.Config) { c.Pprof = "yes" }, []string{`CELLMQ_PPROF is "yes"`, "auto, on, off"}},
		{"collector", func(c *worker.Config) { c.OtlpEndpoint = "u:secret@otel:4317" }, []string{"CELLMQ_OTLP_ENDPOINT is not a URL", "http://host:port"}},
		{"level", func(c *worker.Config) { c.LogLevel = "loud" }, []string{"CELLMQ_LOG_LEVEL", "debug, info, warn, error"}},
		{"format", func(c *worker.Config) { c.LogFormat = "xml" }, []string{"CELLMQ_LOG_FORMAT", "text, json"}},
		{
			"all together", func(c *worker.Config) { c.Slots, c.LogLevel = -1, "loud" },
			[]string{"CELLMQ_SLOTS", "CELLMQ_LOG_LEVEL"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := worker.DefaultConfig()
			tc.change(&cfg)
			err := cfg.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q shows a password", err)
			}
			if _, err := worker.New(cfg, worker.Deps{}); err == nil {
				t.Error("New takes the configuration")
			}
		})
	}
}

// TestInstructions wants every tier of this machine to be allowed.
func TestInstructions(t *testing.T) {
	t.Parallel()
	for _, isa := range append([]string{""}, cpu.Tiers()...) {
		cfg := worker.DefaultConfig()
		cfg.ISA = isa
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestFromEnv(t *testing.T) {
	t.Setenv("CELLMQ_NATS_URL", "nats://one:4222")
	t.Setenv("CELLMQ_MODEL_DIRS", "/a,/b")
	t.Setenv("CELLMQ_SLOTS", "7")
	t.Setenv("CELLMQ_ADMIN_ADDRESS", "")
	t.Setenv("CELLMQ_MAX_QUEUED_PER_CLIENT", "11")
	t.Setenv("CELLMQ_WEIGHTS", "bf16,langid=f32")
	t.Setenv("CELLMQ_ISA", "purego")
	t.Setenv("SLOTS", "99")
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	want := worker.DefaultConfig()
	want.NatsURL, want.ModelDirs, want.Slots, want.AdminAddress = "nats://one:4222", []string{"/a", "/b"}, 7, ""
	want.MaxQueuedPerClient = 11
	if cfg.NatsURL != want.NatsURL || strings.Join(cfg.ModelDirs, " ") != "/a /b" || cfg.Slots != 7 ||
		cfg.AdminAddress != "" || cfg.MaxQueuedPerClient != 11 || cfg.Heartbeat != want.Heartbeat {
		t.Errorf("got %+v, want %+v", cfg, want)
	}
	if strings.Join(cfg.Weights, " ") != "bf16 langid=f32" || cfg.ISA != "purego" || cfg.Validate() != nil {
		t.Errorf("weights %q, instructions %q: %v", cfg.Weights, cfg.ISA, cfg.Validate())
	}
	if err := worker.UnknownEnv(); err != nil {
		t.Errorf("every variable is a setting, yet: %v", err)
	}

	t.Setenv("CELLMQ_SLOT", "7")
	if err := worker.UnknownEnv(); err == nil || !strings.Contains(err.Error(), "CELLMQ_SLOT") {
		t.Errorf("a variable that is no setting: %v", err)
	}
	t.Setenv("CELLMQ_SLOTS", "many")
	if _, err := worker.DefaultConfig().FromEnv(); err == nil ||
		!strings.Contains(err.Error(), "CELLMQ_SLOTS") || !strings.Contains(err.Error(), "many") {
		t.Errorf("a bad value: %v", err)
	}
}

// TestEverySettingIsRead sets each documented variable to nonsense or a new
// value and wants the configuration to notice.
func TestEverySettingIsRead(t *testing.T) {
	settings := worker.Settings()
	if len(settings) < 20 {
		t.Fatalf("only %d settings", len(settings))
	}
	for _, s := range settings {
		t.Run(s.Variable, func(t *testing.T) {
			if s.Description == "" {
				t.Error("has no description")
			}
			t.Setenv(s.Variable, "!")
			cfg, err := worker.DefaultConfig().FromEnv()
			if err != nil {
				return // a number or a duration
			}
			if reflect.DeepEqual(cfg, worker.DefaultConfig()) {
				t.Error("is not read")
			}
		})
	}
}

func TestDataPath(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	cfg := worker.DefaultConfig()
	if got, err := cfg.DataPath(); err != nil || got != "/state/cellmq" {
		t.Errorf("with XDG_STATE_HOME: %q, %v", got, err)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/home/me")
	if got, err := cfg.DataPath(); err != nil || got != "/home/me/.local/state/cellmq" {
		t.Errorf("with HOME: %q, %v", got, err)
	}
	cfg.DataDir = "here"
	if got, err := cfg.DataPath(); err != nil || got != "here" {
		t.Errorf("with a data directory: %q, %v", got, err)
	}
}

const (
	tableBegin = "<!-- settings: generated by go test ./worker -update -->\n"
	tableEnd   = "<!-- settings end -->\n"
)

// TestSettingsAreDocumented compares the table in docs/operations.md with the
// configuration.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "operations.md")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", path, tableBegin, tableEnd)
	}
	if want := "\n" + worker.SettingsTable() + "\n"; table != want {
		if *update {
			if err := os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("%s does not have the settings as they are: run go test ./worker -update", path)
	}
}
