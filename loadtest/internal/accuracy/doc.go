// Package accuracy measures what a weight type costs on the bundled models.
//
//	test sets --> exam of a model --> sheets, one for each weight type
//	                                    | compared case by case with float32
//	                                    v
//	                                  Figure
//
// # Cases
//
// A case is an input with its truth: a word with its pronunciations, a text with
// its language, an expression with its value. The same cases go to the model
// with each weight type, so the difference to float32 rests only on the cases
// in which the two disagree, and its interval is far narrower than that of the
// share itself: with b cases that only float32 has wrong and c that only the
// other type has wrong, of n, the difference is (c - b)/n, and its 95 % interval
// is 1.96 standard errors to either side, with half a case added to b and to c.
//
// A language model has no truth but the text itself: bits per byte of held-out
// text, read as one sequence.
//
// # Drift
//
// A recurrent state carries its errors along. Drift feeds the same tokens,
// whatever the model would have chosen, to the model with each weight type, step
// by step, and compares the state h and the logits with those of float32: the
// root of the mean squared difference, divided by the root mean square of the
// float32 values, over all sequences. The nodes of a step are the ones that the
// model's own graph asks for between two output tokens.
package accuracy
