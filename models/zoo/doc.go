// Package zoo holds the models that every binary carries, each a model
// directory under its name. Their cards say where they come from, under which
// licence, and how good they are.
//
// Weights are stored in the smallest type that costs no accuracy on the
// model's test inputs. The command in internal/convert measures that and writes
// the stored files from float32 ones; its documentation says how to run it.
package zoo
