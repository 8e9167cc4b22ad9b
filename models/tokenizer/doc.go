// Package tokenizer turns a request's text into token ids and output tokens
// into text.
//
// There are five kinds. "bytes" has one token for each byte of UTF-8;
// "characters" has one for each character; "words" has one for each word, with
// a separator between them; "ids" has no vocabulary: its text is the ids
// themselves in decimal, separated by spaces, so that a model without a
// vocabulary can still be asked in plain text; "tree" reads binary trees
// written as s-expressions.
//
// Decoding is incremental: a [Text] is given the tokens as they arrive and
// returns what each adds to the text, so a stream of deltas adds up to the
// decoded whole. What it returns is whole characters, however tokens cut them.
//
// [Stops] are texts that end an output. They are matched in the text, across
// tokens: a [Stopper] says which tokens belong to the output, a [Text] which
// part of their text does. Both hold back what may yet turn out to be part of a
// stop text.
package tokenizer
