// Package tree is the tree_lstm family: a binary TreeLSTM reads a tree from
// its leaves to its root and a linear classifier reads the root.
//
// # Cells
//
// A leaf is one node of the cell "leaf", an inner node one of "node", and the
// root's state goes through "head" once. Nodes of the same cell run in one
// batch whatever tree they belong to and however deep they stand; two nodes
// of one tree can run in one batch when neither is above the other.
//
//	leaf(a)  leaf(b)   leaf(c)
//	     \    /          /
//	    node(a b)       /            entries of the slot's state:
//	          \        /             a node reads its children's two,
//	         node((a b) c)           writes its left child's
//	               |                 and frees its right child's
//	             head
//
// # State
//
// A slot has a fixed number R of entries for the states of nodes, however
// large the tree. Leaves are started one after the other whenever an entry is
// free, in the order of Sethi and Ullman (1970): of a node's two subtrees
// first all leaves of the one that needs more entries. The need of a leaf is
// 1; that of a node is the larger need of its children, or one more when they
// are equal.
//
// This never deadlocks when R is at least the root's need. Suppose that
// nothing runs, nothing is ready, and leaves are left. The leaves started are
// a prefix of the order, and every node above only started leaves is done, so
// the entries in use are one for each largest complete subtree: the stack of
// a depth-first evaluation in that order before its next leaf. By induction
// the stack of a tree never exceeds its need: the subtree that goes first has
// the stack for itself, the other has all but the one entry of the first's
// result, and when both need the same that one entry is the one more. The
// stack with the next leaf is within the need too, so at least one of R
// entries is free, and the next leaf would have been started.
//
// A tree of need k has at least 2^(k-1) leaves, so L leaves need at most
// log2(L)+1 entries: 16 for a tree of 65,536 nodes. Entries beyond that let
// more of one tree run at once.
//
// # Memory
//
// A [Graph] keeps about twenty bytes for each node of the tree and allocates
// only when it is made. Nothing recurses, so depth is bounded by the number of
// nodes alone.
package tree
