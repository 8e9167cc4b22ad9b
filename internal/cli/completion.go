package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// completionWait bounds how long a completion asks the server.
const completionWait = 300 * time.Millisecond

// completionQuiet is how long after one worker's answer another's is waited for.
const completionQuiet = 60 * time.Millisecond

// completeFunc completes an argument or a flag's value.
type completeFunc = cobra.CompletionFunc

func newCompletion(s streams) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd := &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print a script that makes a shell complete cellmq's command lines",
		Long: `completion prints a script for a shell. With it the shell completes commands, flags
and their values, and the names of models and versions: those that the server has,
when it answers within 300 ms, else the bundled ones.

The program is named cellmq and found in PATH.`,
		Example: `  source <(cellmq completion bash)
  cellmq completion bash > /etc/bash_completion.d/cellmq
  cellmq completion zsh > "${fpath[1]}/_cellmq"
  cellmq completion fish > ~/.config/fish/completions/cellmq.fish
  cellmq completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args:      args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, shell []string) error {
			root := cmd.Root()
			switch shell[0] {
			case "bash":
				return bashCompletion(root, s.out)
			case "zsh":
				return root.GenZshCompletion(s.out)
			case "fish":
				return root.GenFishCompletion(s.out, true)
			}
			return root.GenPowerShellCompletionWithDesc(s.out)
		},
	}
	manual.Note(cmd, manual.Notes{Environment: noEnvironment})
	return cmd
}

// fixed completes to values that are known.
func fixed(values ...string) completeFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completeFlag completes the values of a flag.
func completeFlag(cmd *cobra.Command, flag string, complete completeFunc) {
	// The flag exists and has no completion yet: nothing else can fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// directories completes to the names of directories.
func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// files completes to the names of files.
func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// onlyDirectory completes the one argument of a command.
func onlyDirectory(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return directories(cmd, args, toComplete)
}

// noFiles keeps the names of files from where they make no sense: what a command does
// not say how to complete, an argument or the value of a flag, has no completion.
func noFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, said := cmd.GetFlagCompletionFunc(f.Name); !said && f.Value.Type() != "bool" {
			completeFlag(cmd, f.Name, cobra.NoFileCompletions)
		}
	})
	for _, c := range cmd.Commands() {
		noFiles(c)
	}
}

// first completes the first argument only.
func first(list func(cmd *cobra.Command, toComplete string) []string) completeFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(cmd, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// firstThenDirectory is first, and a directory after it.
func firstThenDirectory(list func(cmd *cobra.Command, toComplete string) []string) completeFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return list(cmd, toComplete), cobra.ShellCompDirectiveNoFileComp
		}
		return onlyDirectory(cmd, args[1:], toComplete)
	}
}

// servedModels lists the models that workers serve, or the bundled ones when none
// says so.
func servedModels(cmd *cobra.Command, _ string) []string {
	names := fromServer(cmd, func(ctx context.Context, nc *nats.Conn, prefix string) []string {
		inbox := nc.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil || nc.PublishRequest("$SRV.INFO.cellmq", inbox, nil) != nil {
			return nil
		}
		var names []string
		end, _ := ctx.Deadline() // fromServer's
		for wait := completionWait; ; wait = completionQuiet {
			m, err := sub.NextMsg(min(wait, time.Until(end)))
			if err != nil {
				return names
			}
			names = append(names, offered(m.Data, prefix+".rt.")...)
		}
	})
	if len(names) == 0 {
		return zoo.Names()
	}
	return names
}

// offered returns the models of a worker's description.
func offered(description []byte, prefix string) (names []string) {
	var service struct {
		Endpoints []struct {
			Subject string `json:"subject"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(description, &service) != nil {
		return nil
	}
	for _, e := range service.Endpoints {
		if name, ok := strings.CutPrefix(e.Subject, prefix); ok && broker.ValidModel(name) {
			names = append(names, name)
		}
	}
	return names
}

// storedModels lists the models of which the registry has versions.
func storedModels(cmd *cobra.Command, _ string) []string { return storedNames(cmd, false) }

// storedVersions lists the versions in the registry, as NAME@VERSION.
func storedVersions(cmd *cobra.Command, _ string) []string { return storedNames(cmd, true) }

// storedAny lists models, or versions of the one that is written before an @.
func storedAny(cmd *cobra.Command, toComplete string) []string {
	return storedNames(cmd, strings.Contains(toComplete, "@"))
}

func storedNames(cmd *cobra.Command, versions bool) []string {
	return fromServer(cmd, func(ctx context.Context, nc *nats.Conn, prefix string) []string {
		r, err := registry.New(registry.Config{Conn: nc, Prefix: prefix})
		if err != nil {
			return nil
		}
		all, err := r.Versions(ctx, "")
		if err != nil {
			return nil
		}
		var names []string
		for _, m := range all {
			if name := m.Model; versions {
				names = append(names, name+"@"+m.Version)
			} else {
				names = append(names, name)
			}
		}
		return names
	})
}

// fromServer asks the server that the command line and the environment name, and
// returns what it says in order, each once; nothing when it is not reached in time.
func fromServer(cmd *cobra.Command, ask func(ctx context.Context, nc *nats.Conn, prefix string) []string) []string {
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return nil
	}
	if url, err := cmd.Flags().GetString("nats-url"); err == nil && url != "" {
		cfg.NatsURL = url
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
	defer cancel()
	nc, err := dial(ctx, cfg, "")
	if err != nil {
		return nil
	}
	defer nc.Close()
	names := ask(ctx, nc, cfg.SubjectPrefix)
	slices.Sort(names)
	return slices.Compact(names)
}
