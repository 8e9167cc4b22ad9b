// Package tensors takes the weights that a family's cells need out of a file.
//
// A [Taker] checks each tensor's presence and shape before it converts a
// value, counts the parameters, and collects all that is wrong, so that a
// model that does not fit its configuration is refused with every fault named
// at once, tensors that no cell asked for included.
package tensors
