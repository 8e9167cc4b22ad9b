//go:build !purego

package kernel

func avx2Elementwise() elementwise {
	return elementwise{
		tanh: tanhAVX2, lstm: lstmAVX2, gru: gruAVX2, treeLeaf: treeLeafAVX2, treeNode: treeNodeAVX2,
		dots: dotsAVX2, weigh: weighAVX2, exps: expsAVX2, divide: divideAVX2, addVector: addVectorAVX2,
		largest: largestAVX2, find: findAVX2, sumExp: sumExpAVX2,
	}
}

func avx512Elementwise() elementwise {
	return elementwise{
		tanh: tanhAVX512, lstm: lstmAVX512, gru: gruAVX512, treeLeaf: treeLeafAVX512, treeNode: treeNodeAVX512,
		dots: dotsAVX512, weigh: weighAVX512, exps: expsAVX512, divide: divideAVX512, addVector: addVectorAVX512,
		largest: largestAVX512, find: findAVX512, sumExp: sumExpAVX512,
	}
}
