//go:build !purego

package kernel

func neonElementwise() elementwise {
	return elementwise{
		tanh: tanhNEON, lstm: lstmNEON, gru: gruNEON, treeLeaf: treeLeafNEON, treeNode: treeNodeNEON,
		dots: dotsNEON, weigh: weighNEON, exps: expsNEON, divide: divideNEON, addVector: addVectorNEON,
		largest: largestNEON, find: findNEON, sumExp: sumExpNEON,
	}
}
