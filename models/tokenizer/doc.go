// Package tokenizer turns a request's text into token ids and output tokens
// into text.
//
// There are four kinds. "characters" has one token for each character;
// "words" has one for each word, with a separator between them; "ids" has no
// vocabulary: its text is the ids themselves in decimal, separated by spaces,
// so that a model without a vocabulary can still be asked in plain text.
//
// Decoding is incremental: a [Text] is given the tokens as they arrive and
// returns what each adds to the text, so a stream of deltas adds up to the
// decoded whole.
package tokenizer
