package tree

// shape is how the nodes of a tree hang together.
type shape struct {
	// parents has, for each node in postorder, its parent's index times two,
	// plus one when the node is the right child; -1 for the root.
	parents []int32
	// leaves are the indices of the leaves in the order in which they start.
	leaves []int32
}

// newShape reads a tree in postorder. Of an inner node's children the right
// one stands just before it and the left one just before the right one's
// subtree, so sizes of subtrees are all that is needed to find them.
func newShape(ids []int32) shape {
	n := len(ids)
	s := shape{parents: make([]int32, n), leaves: make([]int32, (n+1)/2)}
	size, need := make([]int32, n), make([]uint8, n)
	for i, id := range ids {
		if id >= 0 {
			size[i], need[i] = 1, 1
			continue
		}
		left, right := children(i, size)
		size[i] = size[left] + size[right] + 1
		need[i] = max(need[left], need[right])
		if need[left] == need[right] {
			need[i]++
		}
		s.parents[left], s.parents[right] = int32(2*i), int32(2*i+1)
	}
	s.parents[n-1] = -1
	// A subtree's leaves are a range of the order, which its children share:
	// from says where it begins.
	from := make([]int32, n)
	for i := n - 1; i >= 0; i-- {
		if ids[i] >= 0 {
			s.leaves[from[i]] = int32(i)
			continue
		}
		first, second := children(i, size)
		if need[second] > need[first] {
			first, second = second, first
		}
		from[first] = from[i]
		from[second] = from[i] + (size[first]+1)/2
	}
	return s
}

// children returns the indices of an inner node's children.
func children(i int, size []int32) (left, right int) {
	right = i - 1
	return right - int(size[right]), right
}
