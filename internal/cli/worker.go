package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

func newWorker(s streams) *cobra.Command {
	flags := &workerFlags{}
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Serve models",
		Long: `worker pulls requests from NATS JetStream and serves them. Without a NATS URL it
runs an embedded server, to which other processes connect as well.

Every setting is an environment variable CELLMQ_...; the flags below override
the variables of the same meaning. docs/operations.md lists them all.

SIGTERM or SIGINT drains: the worker takes no more requests and finishes what
runs, at most for the grace period. A second signal hands back at once.`,
		Example: `  cellmq worker
  cellmq worker --nats-url nats://nats:4222 --slots 64
  cellmq worker --model-dir ./models --models g2p-en,my-model`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, s)
		},
	}
	flags.bind(cmd.Flags())
	manual.Note(cmd, manual.Notes{Environment: workerEnvironment, Exit: workerExit})
	completeFlag(cmd, "model-dir", directories)
	completeFlag(cmd, "data-dir", directories)
	completeFlag(cmd, "models", fixed(zoo.Names()...))
	completeFlag(cmd, "log-level", fixed("debug", "info", "warn", "error"))
	completeFlag(cmd, "log-format", fixed("text", "json"))
	return cmd
}

// serve runs a worker until a signal or ctx ends it.
func serve(ctx context.Context, cfg worker.Config, s streams) error {
	log := newLogger(cfg, s.err)
	if err := worker.UnknownEnv(); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "environment variable is no setting", slog.Any("error", err))
	}
	w, err := worker.New(cfg, worker.Deps{Log: log, Version: version})
	if err != nil {
		return usageError{err}
	}
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case sig := <-signals:
				log.LogAttrs(ctx, slog.LevelInfo, "signal", slog.String("signal", sig.String()))
			}
			if first {
				drain()
			} else {
				w.HandBack()
			}
		}
	}()
	return w.Run(ctx)
}

// newLogger returns the logger that the configuration describes.
func newLogger(cfg worker.Config, out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		level = slog.LevelInfo // the configuration's own check says what is wrong
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// workerFlags are the settings that have a flag.
type workerFlags struct {
	values worker.Config
	set    *pflag.FlagSet
	copies map[string]func(dst, src *worker.Config)
}

// bind defines the flags; their defaults are the settings'.
func (f *workerFlags) bind(set *pflag.FlagSet) {
	f.values, f.set = worker.DefaultConfig(), set
	v := &f.values
	set.StringVar(&v.NatsURL, "nats-url", v.NatsURL, "NATS server to connect to; without one, an embedded server runs")
	set.StringVar(&v.DataDir, "data-dir", v.DataDir, "directory of the embedded server's streams (default $XDG_STATE_HOME/cellmq or ~/.local/state/cellmq)")
	set.StringVar(&v.EmbeddedHost, "host", v.EmbeddedHost, "address that the embedded server listens on")
	set.IntVar(&v.EmbeddedPort, "port", v.EmbeddedPort, "port of the embedded server; 0 is a free one, -1 none")
	set.StringVar(&v.Name, "name", v.Name, "name of the worker (default the host's and a random suffix)")
	set.StringSliceVar(&v.Models, "models", v.Models, "models to serve (default all that are found)")
	set.StringArrayVar(&v.ModelDirs, "model-dir", v.ModelDirs, "directory whose sub-directories are models; repeatable")
	set.IntVar(&v.Slots, "slots", v.Slots, "durable requests that run at the same time")
	set.IntVar(&v.RealtimeSlots, "realtime-slots", v.RealtimeSlots, "realtime requests that run at the same time; 0 is as many as --slots")
	set.IntVar(&v.Executors, "executors", v.Executors, "loops that run steps at the same time")
	set.IntVar(&v.Threads, "threads", v.Threads, "threads that share a step, of each loop")
	set.DurationVar(&v.Grace, "grace", v.Grace, "how long running requests may finish when the worker drains")
	set.StringVar(&v.AdminAddress, "admin", v.AdminAddress, "address of /metrics, /healthz, /readyz and /live/; empty is off")
	set.StringVar(&v.LogLevel, "log-level", v.LogLevel, "debug, info, warn or error")
	set.StringVar(&v.LogFormat, "log-format", v.LogFormat, "text or json")
	f.copies = map[string]func(dst, src *worker.Config){
		"nats-url":       func(dst, src *worker.Config) { dst.NatsURL = src.NatsURL },
		"data-dir":       func(dst, src *worker.Config) { dst.DataDir = src.DataDir },
		"host":           func(dst, src *worker.Config) { dst.EmbeddedHost = src.EmbeddedHost },
		"port":           func(dst, src *worker.Config) { dst.EmbeddedPort = src.EmbeddedPort },
		"name":           func(dst, src *worker.Config) { dst.Name = src.Name },
		"models":         func(dst, src *worker.Config) { dst.Models = src.Models },
		"model-dir":      func(dst, src *worker.Config) { dst.ModelDirs = src.ModelDirs },
		"slots":          func(dst, src *worker.Config) { dst.Slots = src.Slots },
		"realtime-slots": func(dst, src *worker.Config) { dst.RealtimeSlots = src.RealtimeSlots },
		"executors":      func(dst, src *worker.Config) { dst.Executors = src.Executors },
		"threads":        func(dst, src *worker.Config) { dst.Threads = src.Threads },
		"grace":          func(dst, src *worker.Config) { dst.Grace = src.Grace },
		"admin":          func(dst, src *worker.Config) { dst.AdminAddress = src.AdminAddress },
		"log-level":      func(dst, src *worker.Config) { dst.LogLevel = src.LogLevel },
		"log-format":     func(dst, src *worker.Config) { dst.LogFormat = src.LogFormat },
	}
}

// config returns the environment's settings with those replaced whose flags
// were given.
func (f *workerFlags) config() (worker.Config, error) {
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return cfg, usageError{err}
	}
	f.set.Visit(func(flag *pflag.Flag) {
		if override := f.copies[flag.Name]; override != nil {
			override(&cfg, &f.values)
		}
	})
	return cfg, nil
}
