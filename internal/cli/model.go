package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
)

func newModel(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Check models, keep versions of them in NATS, and deploy those to workers",
		Long: `model is about a fleet's models. push stores the directory of a model in NATS, under
the version that its config.json names. deploy has every worker load a version
beside the one that serves, check its golden outputs and then take requests with
it, all without a restart and without losing any; rollback goes back. verify and
golden look at a directory, without a server.

The server is --nats-url, else CELLMQ_NATS_URL, else nats://127.0.0.1:4222. A
version is written NAME@VERSION.`,
		Example: `  cellmq model golden ./my-lm --input "In the beginning"
  cellmq model verify ./my-lm
  cellmq model push ./my-lm
  cellmq model deploy my-lm@2 --canary 10 --hold 10m
  cellmq model show my-lm
  cellmq model rollback my-lm`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newModelVerify(s), newModelGolden(s), newModelPush(s), newModelPull(s), newModelList(s), newModelShow(s),
		newModelDeploy(s), newModelRollback(s), newModelUndeploy(s), newModelPin(s, true), newModelPin(s, false), newModelDelete(s),
	)
	return cmd
}

// modelOptions are the flags that the commands about the registry share.
type modelOptions struct {
	connOptions

	storeBytes int64 // of push
}

// withRegistry runs f with the registry of the server, until a signal ends its
// context.
func (o *modelOptions) withRegistry(cmd *cobra.Command, s streams, f func(context.Context, *registry.Registry) error) error {
	cfg, err := environment()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process
	return o.withConn(ctx, cfg, s, "cellmq model", func(conn *broker.Conn) error {
		cfg.LogLevel = "info"
		r, err := registry.New(registry.Config{
			Conn: conn.NATS(), Prefix: cfg.SubjectPrefix, Replicas: cfg.Replicas, StoreBytes: o.storeBytes, Log: newLogger(cfg, s.err),
		})
		if err != nil {
			return usageError{err}
		}
		return advised(f(ctx, r))
	})
}

// advised adds to an error of the registry what to do about it.
func advised(err error) error {
	var advice string
	var unreadable *registry.UnreadableError
	switch {
	case errors.Is(err, errLate):
		return err
	case errors.Is(err, registry.ErrNoRegistry):
		advice = "'cellmq model push' makes one"
	case errors.Is(err, registry.ErrNotFound):
		advice = "'cellmq model list' shows those there are"
	case errors.Is(err, registry.ErrVersionTaken):
		advice = "give the new files another version in config.json"
	case errors.Is(err, registry.ErrNoRoom):
		advice = "'cellmq model delete' makes room, --store-bytes gives more"
	case errors.Is(err, registry.ErrNoReserve):
		advice = "max_file_store of the server bounds what all streams reserve, 2 GiB with the embedded one; --store-bytes says how much of it the models get"
	case errors.Is(err, registry.ErrIncomplete):
		advice = "push the version again"
	case errors.As(err, &unreadable):
		advice = "'cellmq model deploy NAME@VERSION --anew' begins another, 'cellmq model undeploy NAME --anew' ends it"
	case errors.Is(err, registry.ErrPinned):
		advice = "'cellmq model unpin' allows it"
	case errors.Is(err, registry.ErrUnderWay):
		advice = "'cellmq model show' tells how far it is, 'cellmq model rollback' ends it"
	case errors.Is(err, registry.ErrThird):
		advice = "--timeout waits until the workers have freed one"
	case errors.Is(err, registry.ErrHeld):
		advice = "'cellmq model show' tells which workers have it, without --no-wait it is waited for"
	case errors.Is(err, registry.ErrDeleting):
		advice = "'cellmq model push' keeps it when its deletion was interrupted"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, advice)
}

// modelName reads an argument that names a model.
func modelName(text string) (string, error) {
	if !broker.ValidModel(text) {
		return "", usagef("%.80q is no name of a model: 1 to 64 of a-z, 0-9 and - wanted", text)
	}
	return text, nil
}

// maxVersion is how long the text of a version can be.
const maxVersion = 64

// modelVersion reads an argument that names a version of a model. An argument
// without an @ names none.
func modelVersion(text string) (name, version string, err error) {
	name, version, found := strings.Cut(text, "@")
	if name, err = modelName(name); err != nil {
		return "", "", err
	}
	if found && (version == "" || len(version) > maxVersion) {
		return "", "", usagef("version %.80q of %s: 1 to %d bytes wanted", version, name, maxVersion)
	}
	return name, version, nil
}

// oneVersion is modelVersion for arguments that must name a version.
func oneVersion(text string) (name, version string, err error) {
	name, version, err = modelVersion(text)
	if err == nil && version == "" {
		err = usagef("%q names no version: %s@VERSION wanted", text, name)
	}
	return name, version, err
}

// refName is how people name what a deployment refers to.
func refName(r registry.Ref) string {
	if r == (registry.Ref{}) {
		return "each worker's own"
	}
	return shown(r.Version)
}
