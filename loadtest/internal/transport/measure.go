package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// Measure measures every system, round by round. Progress is told, in words,
// what comes next. A program that calls it begins with [Main].
func Measure(ctx context.Context, o Options, progress func(string)) (r *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cellmq-transport-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := writeModel(filepath.Join(dir, "models")); err != nil {
		return nil, fmt.Errorf("write model: %w", err)
	}
	if o.Program == "" {
		progress("building cellmq")
		o.Program = filepath.Join(dir, "cellmq")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Program, "github.com/cellmq/cellmq")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build cellmq: %w: %s", err, out)
		}
	}
	samples := map[string][]sample{}
	for round := range o.Rounds {
		for _, s := range systems() {
			progress(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, s.name))
			t := &trial{options: o, system: s, dir: dir, files: filepath.Join(dir, "streams")}
			one, err := t.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			samples[s.name] = append(samples[s.name], one)
		}
	}
	return &Report{
		Options: o, Seconds: o.Duration.Seconds(), Systems: figures(samples),
		Host: fmt.Sprintf("%d processors, %s, %s/%s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH),
	}, nil
}

// trial is one measurement of one system.
type trial struct {
	options Options
	system  system
	dir     string
	files   string // of the server
	parts   []*process
}

func (t *trial) run(ctx context.Context) (sample, error) {
	defer func() {
		for i := len(t.parts) - 1; i >= 0; i-- {
			t.parts[i].stop()
		}
	}()
	if err := os.RemoveAll(t.files); err != nil {
		return sample{}, err
	}
	server, url, err := t.start(ctx, &role{Part: "server", Dir: t.files}, "ready ")
	if err != nil {
		return sample{}, err
	}
	worker, err := t.worker(ctx, url)
	if err != nil {
		return sample{}, err
	}
	client, _, err := t.start(ctx, &role{Part: "client", URL: url, CellMQ: t.system.cellmq}, "begin")
	if err != nil {
		return sample{}, err
	}
	return t.measure(ctx, client, worker, server)
}

// start starts a part and waits for a word of it.
func (t *trial) start(ctx context.Context, r *role, word string) (p *process, rest string, err error) {
	r.Durable, r.Options, r.Duration = t.system.durable, t.options, t.options.Duration
	if p, err = startPart(r); err != nil {
		return nil, "", err
	}
	t.parts = append(t.parts, p)
	rest, err = p.says(ctx, word, startWait+t.options.Duration)
	return p, rest, err
}

func (t *trial) worker(ctx context.Context, url string) (*process, error) {
	if !t.system.cellmq {
		p, _, err := t.start(ctx, &role{Part: "worker", URL: url}, "ready")
		return p, err
	}
	cmd := exec.Command(t.options.Program, "worker", "--nats-url", url, "--model-dir", filepath.Join(t.dir, "models"),
		"--models", modelName, "--slots", strconv.Itoa(t.options.Slots), "--realtime-slots", strconv.Itoa(2*t.options.InFlight),
		"--admin", "")
	cmd.Env = append(os.Environ(), "CELLMQ_FRAME_INTERVAL=0", "CELLMQ_PROFILE=0", "CELLMQ_MAX_ROWS="+strconv.Itoa(t.options.Slots))
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	t.parts = append(t.parts, p)
	_, err = p.says(ctx, "msg=serving", startWait)
	return p, err
}

// measure reads processor times while the client counts.
func (t *trial) measure(ctx context.Context, parts ...*process) (sample, error) {
	before, err := cpuTimes(parts)
	if err != nil {
		return sample{}, err
	}
	text, err := parts[0].says(ctx, "end ", t.options.Duration+startWait)
	if err != nil {
		return sample{}, err
	}
	after, err := cpuTimes(parts)
	if err != nil {
		return sample{}, err
	}
	var r result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return sample{}, fmt.Errorf("read result: %w", err)
	}
	if r.Requests == 0 {
		return sample{}, errNoAnswer
	}
	cost := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / float64(r.Requests) }
	return sample{rate: float64(r.Requests) / r.Seconds, first: r.First, client: cost(0), worker: cost(1), server: cost(2)}, nil
}

func cpuTimes(parts []*process) ([]time.Duration, error) {
	out := make([]time.Duration, len(parts))
	for i, p := range parts {
		var err error
		if out[i], err = cpuTime(p.cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	return out, nil
}
