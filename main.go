// Cellmq serves recurrent models over NATS with cellular batching. Run
// `cellmq demo` to see it work and `cellmq help` for its commands.
package main

import (
	"context"
	"os"

	"github.com/cellmq/cellmq/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
