package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
)

const defaultHealthURL = "http://127.0.0.1:9464/readyz"

func newHealth(s streams) *cobra.Command {
	timeout := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "health [URL]",
		Short: "Ask a worker whether it takes requests",
		Long: `health asks an HTTP address, by default a local worker's /readyz, and fails
unless the answer is 200. It is the health check of containers, which have no
shell and no other client.`,
		Example: `  cellmq health
  cellmq health http://127.0.0.1:9464/healthz`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, urls []string) error {
			url := defaultHealthURL
			if len(urls) > 0 {
				url = urls[0]
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return health(ctx, url, s.out)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "longest time to wait for the answer")
	manual.Note(cmd, manual.Notes{Environment: noEnvironment, Exit: healthExit})
	return cmd
}

func health(ctx context.Context, url string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(resp.Body, 4096))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
