//go:build !purego

package kernel

func neonElementwise() elementwise {
	t := portable().elementwise
	t.tanh, t.lstm, t.gru, t.treeLeaf, t.treeNode = tanhNEON, lstmNEON, gruNEON, treeLeafNEON, treeNodeNEON
	return t
}
