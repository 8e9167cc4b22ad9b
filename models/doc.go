// Package models says what a model is: a directory with a configuration,
// weights and vocabulary files, loaded into a program of cells, and the rules
// that turn a request's input into a graph of those cells.
//
//	config.json        model_type picks the family, the rest are its sizes
//	model.safetensors  weights under PyTorch's own parameter names
//	*.json             vocabulary files that config.json names
//	golden.jsonl       inputs with the outputs they must give (optional)
//	card.md            data, licence and figures, for people (optional)
//
//	             Load                    Unfold                 runtime
//	directory ----------> *Model ------------------> *Request ----------> tokens
//	                        | Program (cells)          | Graph              |
//	                        +--- NewText <-------------+--------------------+
//
//	model_type      package     input              output
//	rnn_lm          lm          text or token ids  tokens that go on
//	rnn_seq2seq     seq2seq     text or token ids  tokens of the target
//	rnn_classifier  classifier  text or token ids  label and scores
//	tree_lstm       tree        s-expression       label and scores
//
// Tokens come from the runtime while the graph runs; whatever else a request
// gives is its [Outcome] once the graph has ended. How tokens are chosen, by
// sampling or by search, is the matter of package decode; how they become text,
// that of package tokenizer. [Request.NewText] decodes a request's tokens as
// they come, and holds back what may turn out to be part of a stop text.
//
// Each family is a package below this one: it knows its configuration, its
// tensors, its cells and how a request unfolds into them. This package knows
// what is common: files, the digest, tokenizers, and the checks of what a
// client asked for. Everything a client can get wrong ends as an [InputError]
// with one of the wire's error codes; everything wrong with a model's files
// ends as an error of [Load] that names the file, the field and its bound.
//
// A request can go on from where it was, in another process: what the runtime
// reports as its checkpoint is written by [Request.AppendCheckpoint] and read by
// [Model.Restore], which trusts none of it.
//
// A [Model] is read-only once loaded and safe for concurrent use. Its tensors are
// wanted until a runtime has loaded its program; [Model.Close] drops them, and
// requests go on. [OpenDir] maps the weights of a directory that never changes,
// so that they are not in memory twice while they are packed.
package models
