// Package decode chooses a model's output tokens from its cells' outputs:
// greedily, by sampling, or by beam search.
//
//	          cellrt.Output of a node
//	                  |
//	  +---------------+----------------+
//	  | one output                     | k hypotheses
//	Writer                           Search
//	  | greedy or Sampler              | k best of (live x vocabulary)
//	  | stop texts, top log-probs      | finished ones, proposals
//	  v                                v
//	next token, Frontier.Emit        next rows, then the n best
//
// A family's graph owns one [Writer] or one [Search]; it says what comes after
// a token, this package says which token. Everything is a function of the
// outputs, the options and the number of the step, so a request's tokens do
// not depend on what runs beside it.
//
// # Sampling
//
// The distribution is softmax(logits / temperature). Of it remain the top_k
// most probable tokens, the lower id first of equals; of those, with their
// probabilities renormalised, the shortest run from the most probable on that
// reaches top_p. What remains is renormalised and drawn from. A temperature of
// 0 is greedy whatever else is set.
//
// The random number of step n is the nth block of Philox4x32-10 under the
// request's seed; the numbers of a request have no state. A step is a choice of
// a token, one that ends a segment included. Exponentials are computed here
// with additions and multiplications that no compiler fuses, so that every
// machine draws the same token.
//
// # Records
//
// A writer that records keeps its choices, a few bytes each. Another one with
// the same options that makes them again has the same sums, held back tokens
// and next draw, bit for bit, and has emitted the same tokens. A search has no
// record.
//
// # Beam search
//
// A hypothesis' score is the sum of its tokens' log-probabilities. A step takes
// the k best extensions of the live hypotheses, the earlier hypothesis and the
// lower id first of equals. Those that end in the end token are finished, the
// others live on. The search ends when none lives, when k are finished and the
// worst of the k best is no worse than the best live one, or at the bound on
// tokens, where what lives is finished with the reason [cellrt.Length].
//
// Rows of a step read the states of their parents and write their own, so
// states lie in two halves of an array with an entry for each row: a step reads
// one half and writes the other. The rows of a step may then run in any order
// and in any number of batches.
//
// Nothing is certain before the search ends: all tokens are emitted then, and
// until then each step proposes the best live hypothesis.
package decode
