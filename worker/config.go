package worker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// EnvPrefix starts the name of every environment variable of a [Config].
const EnvPrefix = "CELLMQ"

// Config is everything a worker can be told. [DefaultConfig] returns the
// defaults and [Config.FromEnv] reads the environment: a field's variable is
// [EnvPrefix] and the field's words, so NatsURL is CELLMQ_NATS_URL. The desc
// tags are the documentation of the settings; docs/operations.md repeats them.
type Config struct {
	BrokerConfig
	ServeConfig
	LimitConfig
	ObserveConfig
}

// BrokerConfig says where the broker is and what the embedded one does.
type BrokerConfig struct {
	NatsURL               string        `split_words:"true" desc:"NATS server to connect to, for example nats://nats:4222; several are separated by commas. Empty: run an embedded server."`
	NatsCredentials       string        `split_words:"true" desc:"File with the user's JWT and NKey seed for the NATS server. Empty: none."`
	NatsNkey              string        `split_words:"true" desc:"File with the user's NKey seed for the NATS server. Empty: none."`
	NatsCA                string        `split_words:"true" desc:"File with the certificates (PEM) of the authorities that may have signed the NATS server's. Empty: those of the system."`
	NatsCert              string        `split_words:"true" desc:"File with the certificate (PEM) that the NATS server gets to see. Empty: none."`
	NatsKey               string        `split_words:"true" desc:"File with the private key (PEM) of that certificate."`
	Replicas              int           `split_words:"true" desc:"Servers of a NATS cluster that keep each stream. 3 lets any one of them be lost."`
	DataDir               string        `split_words:"true" desc:"Directory where the embedded server keeps its streams. Empty: $XDG_STATE_HOME/cellmq, or ~/.local/state/cellmq."`
	EmbeddedHost          string        `split_words:"true" desc:"Address that the embedded server listens on."`
	EmbeddedPort          int           `split_words:"true" desc:"Port that the embedded server listens on. 0: a free one. -1: none, the server is reachable only from within the process."`
	EmbeddedWebsocketPort int           `split_words:"true" desc:"Port on which the embedded server takes WebSocket clients. 0: none. -1: a free one."`
	EmbeddedConfig        string        `split_words:"true" desc:"Configuration file of nats-server for the embedded one: users and permissions, TLS, limits, a cluster. The other settings come before what it says. Empty: none, everybody may connect."`
	SubjectPrefix         string        `split_words:"true" desc:"First token of every subject. Clients must use the same."`
	AckWait               time.Duration `split_words:"true" desc:"How long a lease lasts without being extended: a request of a worker that died is delivered again after this time. Leases are extended five times in it."`
}

// ServeConfig says what the worker serves and with how much.
type ServeConfig struct {
	Name          string        `split_words:"true" desc:"Name of the worker in frames, logs and service discovery. Empty: the host's name and a random suffix."`
	Models        []string      `split_words:"true" desc:"Names of the models to serve, separated by commas. Empty: every model found."`
	ModelDirs     []string      `split_words:"true" desc:"Directories whose sub-directories are models, separated by commas. They come beside the bundled models and replace those of the same name."`
	Registry      bool          `desc:"Serve what is deployed from the model registry on the NATS server, where there is one."`
	CacheDir      string        `split_words:"true" desc:"Directory for models fetched from the registry. Empty: $XDG_CACHE_HOME/cellmq, or ~/.cache/cellmq."`
	CacheBytes    int64         `split_words:"true" desc:"Bytes that fetched models may take in CACHE_DIR. The least recently used that nobody needs give way."`
	ModelBytes    int64         `split_words:"true" desc:"Bytes that models may take in memory. Models that are not used give way to those that are asked for; one that runs requests stays. 0: no bound, all models are loaded."`
	Weights       []string      `split_words:"true" desc:"How weights are stored and multiplied: f32, bf16 or int8 for every model, or for one of them, as in g2p-en=int8; several are separated by commas, as in bf16,langid=f32. All workers of a model must use the same, see docs/models.md. Empty: as each model's config.json says, f32 without."`
	ISA           string        `split_words:"true" desc:"Processor instructions to compute with: purego, avx2, avx512, avx512vnni, neon or neondot, as far as the machine has them. Results do not depend on it. Empty: the fastest."`
	Slots         int           `split_words:"true" desc:"Durable requests that run at the same time; the broker queues the rest."`
	RealtimeSlots int           `split_words:"true" desc:"Realtime requests that run at the same time; one more is refused as busy. 0: as many as SLOTS."`
	MaxRows       int           `split_words:"true" desc:"Most rows in one step."`
	Executors     int           `split_words:"true" desc:"Loops that run steps at the same time. Several suit many small steps; results do not depend on it."`
	Threads       int           `split_words:"true" desc:"Threads that share a step, of each loop. Several suit few large steps; results do not depend on it."`
	Profile       time.Duration `split_words:"true" desc:"How long each model is measured when it is loaded, to find the batches that bring most of the throughput and what a row costs a client's share. 0: not at all."`
	FrameInterval time.Duration `split_words:"true" desc:"Shortest time between two token frames of a request; tokens that come sooner share a frame. The first token never waits."`
	Heartbeat     time.Duration `split_words:"true" desc:"Longest time without a frame while a request runs."`
	Grace         time.Duration `split_words:"true" desc:"How long a draining worker lets running requests finish before it hands them back."`

	CheckpointSteps int           `split_words:"true" desc:"Steps of a durable request after which its progress is stored, so that another worker goes on from there; also what a draining worker hands over. Results do not depend on it. 0: never, the request is computed from its beginning."`
	CheckpointBytes int           `split_words:"true" desc:"Largest progress that is stored, in bytes. A request with more, a long input for example, is computed from its beginning."`
	Sweep           time.Duration `split_words:"true" desc:"About how often the worker looks for requests that are stuck in the stream. 0: never."`
}

// LimitConfig bounds what clients can make the worker and its streams hold.
type LimitConfig struct {
	MaxPayload         int           `split_words:"true" desc:"Largest request payload in bytes."`
	MaxQueued          int           `split_words:"true" desc:"Requests that may wait in the broker; more are refused as busy."`
	MaxQueuedPerClient int           `split_words:"true" desc:"Requests that one client may have waiting for one model at one priority; more are refused with quota_exceeded."`
	MaxAttempts        int           `split_words:"true" desc:"Times that workers may begin a durable request and not finish it; after that it ends with attempts_exhausted and a dead letter. What a draining worker hands back, or one that lost its connection, does not count."`
	StoreBytes         int           `split_words:"true" desc:"Bytes that the stream of finals may take, and the stream of states too. The oldest records give way when there are more. See docs/operations.md for how much a rate of requests takes."`
	MaxQueuedAge       time.Duration `split_words:"true" desc:"How long a request may wait in the broker at most, whatever its deadline."`
}

// ObserveConfig says how the worker shows itself.
type ObserveConfig struct {
	AdminAddress string `split_words:"true" desc:"Address of the HTTP server with /metrics, /healthz, /readyz and the live page at /live/. Port 0: a free one. Empty: off."`
	LiveURL      string `split_words:"true" desc:"NATS server that the live page connects to, as browsers see it: ws://... or wss://... Empty: the embedded server, if it has a WebSocket port."`
	Pprof        string `split_words:"true" desc:"Profiles of the process at /debug/pprof/ of the admin address: on, off, or auto, which is on where that address is one of loopback. They show command line and code, and cost time: keep the address private."`
	OtlpEndpoint string `split_words:"true" desc:"URL of an OpenTelemetry collector that takes traces over OTLP/HTTP, for example http://otel:4318. Empty: what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says; without these there are no traces."`
	LogLevel     string `split_words:"true" desc:"debug, info, warn or error. Each request has a line at debug."`
	LogFormat    string `split_words:"true" desc:"text or json."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		BrokerConfig: BrokerConfig{
			EmbeddedHost:  "127.0.0.1",
			EmbeddedPort:  4222,
			Replicas:      1,
			SubjectPrefix: "infer",
			AckWait:       10 * time.Second,
		},
		ServeConfig: ServeConfig{
			Registry:      true,
			CacheBytes:    8 << 30,
			Slots:         16,
			MaxRows:       64,
			Executors:     1,
			Threads:       1,
			Profile:       cellrt.DefaultProfile,
			FrameInterval: 20 * time.Millisecond,
			Heartbeat:     time.Second,
			Grace:         20 * time.Second,

			CheckpointSteps: 256,
			CheckpointBytes: cellrt.DefaultCheckpointBytes,
			Sweep:           time.Minute,
		},
		LimitConfig: LimitConfig{
			MaxPayload:         1<<20 - 64<<10,
			MaxQueued:          20_000,
			MaxQueuedPerClient: 4096,
			MaxAttempts:        5,
			MaxQueuedAge:       15 * time.Minute,
			StoreBytes:         64 << 20,
		},
		ObserveConfig: ObserveConfig{
			AdminAddress: "127.0.0.1:9464",
			Pprof:        pprofAuto,
			LogLevel:     "info",
			LogFormat:    "text",
		},
	}
}

// FromEnv returns c with the fields replaced whose variables are set. The
// error names the variable, its value and what it should be.
func (c Config) FromEnv() (Config, error) {
	if err := envconfig.Process(EnvPrefix, &c); err != nil {
		var parse *envconfig.ParseError
		if errors.As(err, &parse) {
			return c, fmt.Errorf("%s: %q is not a valid %s", parse.KeyName, parse.Value, parse.TypeName)
		}
		return c, fmt.Errorf("read environment: %w", err)
	}
	return c, nil
}

// UnknownEnv returns an error that names a variable that starts with
// [EnvPrefix] and is no setting, or nil. It is worth a warning, not more:
// others set variables too (Kubernetes does for a service named cellmq).
func UnknownEnv() error {
	return envconfig.CheckDisallowed(EnvPrefix, &Config{})
}

// Validate checks every field and returns all violations joined; each names
// the variable, its value and the bound.
func (c Config) Validate() error {
	v := &violations{}
	c.BrokerConfig.validate(v)
	c.ServeConfig.validate(v)
	c.LimitConfig.validate(v)
	c.ObserveConfig.validate(v)
	if c.Heartbeat > 0 && c.FrameInterval > c.Heartbeat {
		v.add("FRAME_INTERVAL", c.FrameInterval, fmt.Sprintf("must not exceed %s_HEARTBEAT, which is %v", EnvPrefix, c.Heartbeat))
	}
	return errors.Join(v.errs...)
}

// DataPath returns the directory of the embedded server's streams, with the
// default resolved.
func (c Config) DataPath() (string, error) {
	if c.DataDir != "" {
		return c.DataDir, nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "cellmq"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no data directory: set %s_DATA_DIR: %w", EnvPrefix, err)
	}
	return filepath.Join(home, ".local", "state", "cellmq"), nil
}

// realtimeSlots resolves the default of RealtimeSlots.
func (c Config) realtimeSlots() int {
	if c.RealtimeSlots == 0 {
		return c.Slots
	}
	return c.RealtimeSlots
}

var (
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	modelPattern   = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	liveURLPattern = regexp.MustCompile(`^wss?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?(/[A-Za-z0-9./_-]*)?$`)
	prefixPattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
)

func (c BrokerConfig) validate(v *violations) {
	for _, server := range splitList(c.NatsURL) {
		scheme, _, ok := strings.Cut(server, "://")
		if ok && scheme != "nats" && scheme != "tls" && scheme != "ws" && scheme != "wss" {
			v.add("NATS_URL", scheme+"://...", "must start with nats://, tls://, ws:// or wss://")
		}
	}
	if c.NatsURL == "" && c.EmbeddedHost == "" {
		v.add("EMBEDDED_HOST", `""`, "must not be empty")
	}
	v.between("EMBEDDED_PORT", c.EmbeddedPort, -1, 65535)
	v.between("EMBEDDED_WEBSOCKET_PORT", c.EmbeddedWebsocketPort, -1, 65535)
	if c.EmbeddedWebsocketPort > 0 && c.EmbeddedWebsocketPort == c.EmbeddedPort {
		v.add("EMBEDDED_WEBSOCKET_PORT", c.EmbeddedWebsocketPort, "must not be "+EnvPrefix+"_EMBEDDED_PORT")
	}
	v.between("REPLICAS", c.Replicas, 1, 5)
	if c.NatsNkey != "" && c.NatsCredentials != "" {
		v.add("NATS_NKEY", c.NatsNkey, "must not be set together with "+EnvPrefix+"_NATS_CREDENTIALS")
	}
	if (c.NatsCert == "") != (c.NatsKey == "") {
		v.add("NATS_CERT", fmt.Sprintf("%q", c.NatsCert), "must be set together with "+EnvPrefix+"_NATS_KEY")
	}
	v.match("SUBJECT_PREFIX", c.SubjectPrefix, prefixPattern)
	v.span("ACK_WAIT", c.AckWait, 100*time.Millisecond, 10*time.Minute)
}

func (c ServeConfig) validate(v *violations) {
	if c.Name != "" {
		v.match("NAME", c.Name, namePattern)
	}
	for _, m := range c.Models {
		v.match("MODELS", m, modelPattern)
	}
	for _, d := range c.ModelDirs {
		if d == "" {
			v.add("MODEL_DIRS", `""`, "must not have an empty entry")
		}
	}
	if _, err := parseWeights(c.Weights); err != nil {
		v.errs = append(v.errs, fmt.Errorf("%s_WEIGHTS %w", EnvPrefix, err))
	}
	if c.CacheBytes < 1<<20 {
		v.add("CACHE_BYTES", c.CacheBytes, "must be at least 1048576")
	}
	if c.ModelBytes < 0 {
		v.add("MODEL_BYTES", c.ModelBytes, "must not be negative")
	}
	v.oneOf("ISA", c.ISA, append([]string{""}, cpu.Tiers()...)...)
	v.between("SLOTS", c.Slots, 1, 65536)
	v.between("REALTIME_SLOTS", c.RealtimeSlots, 0, 65536)
	v.between("MAX_ROWS", c.MaxRows, 1, 4096)
	v.between("EXECUTORS", c.Executors, 1, 256)
	v.between("THREADS", c.Threads, 1, 256)
	v.span("PROFILE", c.Profile, 0, time.Minute)
	v.span("FRAME_INTERVAL", c.FrameInterval, 0, time.Minute)
	v.span("HEARTBEAT", c.Heartbeat, 10*time.Millisecond, time.Minute)
	v.span("GRACE", c.Grace, 0, time.Hour)
	v.between("CHECKPOINT_STEPS", c.CheckpointSteps, 0, 1<<30)
	v.between("CHECKPOINT_BYTES", c.CheckpointBytes, 1, 64<<20)
	v.span("SWEEP", c.Sweep, 0, 24*time.Hour)
}

func (c LimitConfig) validate(v *violations) {
	v.between("MAX_PAYLOAD", c.MaxPayload, 256, 64<<20)
	v.between("MAX_QUEUED", c.MaxQueued, 1, 1<<30)
	v.between("MAX_QUEUED_PER_CLIENT", c.MaxQueuedPerClient, 1, 1<<30)
	v.between("MAX_ATTEMPTS", c.MaxAttempts, 1, 1<<16)
	v.between("STORE_BYTES", c.StoreBytes, 1<<20, 1<<31-1)
	v.span("MAX_QUEUED_AGE", c.MaxQueuedAge, time.Second, 30*24*time.Hour)
}

func (c ObserveConfig) validate(v *violations) {
	if c.AdminAddress != "" {
		if _, _, err := net.SplitHostPort(c.AdminAddress); err != nil {
			v.add("ADMIN_ADDRESS", c.AdminAddress, "must be host:port or empty")
		}
	}
	if c.LiveURL != "" && !liveURLPattern.MatchString(c.LiveURL) {
		v.add("LIVE_URL", broker.RedactURL(c.LiveURL), "must be ws://host:port or wss://host:port, without user and password, which the page asks for")
	}
	v.oneOf("PPROF", c.Pprof, pprofAuto, pprofOn, pprofOff)
	if c.OtlpEndpoint != "" {
		u, err := url.Parse(c.OtlpEndpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			v.add("OTLP_ENDPOINT", "not a URL", "must be http://host:port or https://host:port")
		}
	}
	v.oneOf("LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	v.oneOf("LOG_FORMAT", c.LogFormat, "text", "json")
}

// violations collects what is wrong with a configuration.
type violations struct{ errs []error }

func (v *violations) add(name string, value any, bound string) {
	v.errs = append(v.errs, fmt.Errorf("%s_%s is %v: it %s", EnvPrefix, name, value, bound))
}

func (v *violations) between(name string, value, low, high int) {
	if value < low || value > high {
		v.add(name, value, fmt.Sprintf("must be between %d and %d", low, high))
	}
}

func (v *violations) span(name string, value, low, high time.Duration) {
	if value < low || value > high {
		v.add(name, value, fmt.Sprintf("must be between %v and %v", low, high))
	}
}

func (v *violations) match(name, value string, pattern *regexp.Regexp) {
	if !pattern.MatchString(value) {
		v.add(name, fmt.Sprintf("%q", value), "must match "+pattern.String())
	}
}

func (v *violations) oneOf(name, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	list := strings.Join(allowed, ", ")
	if allowed[0] == "" {
		list = "empty" + list
	}
	v.add(name, fmt.Sprintf("%q", value), "must be one of "+list)
}

// splitList splits a comma-separated list and drops blanks.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
