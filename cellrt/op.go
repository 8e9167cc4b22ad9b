package cellrt

// Value names a row vector inside a cell: the result of an operation, one
// vector per row of the batch. Values exist only while a step runs.
type Value int

// Arg selects one of a node's integer arguments (see [Node]), for example a
// token or a source position.
type Arg int

// Zero is the argument that is 0 in every node. It addresses the only entry of
// a field with one entry.
const Zero Arg = -1

// Matrix is a weight matrix as PyTorch stores it: row-major, Rows outputs by
// Cols inputs. Name is the tensor's name, for errors. The data is shared with
// whoever built the matrix and must not change before backends have loaded it;
// they keep nothing of it.
type Matrix struct {
	Name       string
	Rows, Cols int
	Data       []float32
}

// Activation is what a [Linear] applies to its result.
type Activation uint8

// The activations.
const (
	None Activation = iota
	Tanh
)

// Op is one operation of a cell. Operations run in order, each over all rows
// of the batch before the next one starts, so a row never sees another row's
// store through a load that stands before it. The set is closed: a backend
// knows them all.
type Op interface{ isOp() }

// Embed looks up the row ID of Table.
type Embed struct {
	Table *Matrix
	ID    Arg
	Out   Value
}

// Load gathers the entry Index of Field from each row's slot. A negative index
// yields zeros: that is how a chain starts from a zero state without its slot
// having to be cleared.
type Load struct {
	Field FieldID
	Index Arg
	Out   Value
}

// Store scatters In to the entry Index of Field in each row's slot, starting
// at Column (a bidirectional encoder's directions write one half each).
type Store struct {
	Field  FieldID
	Index  Arg
	Column int
	In     Value
}

// Linear computes Act(Weight [In[0]; In[1]; ...] + Bias). Each output element
// is one chain that starts with the bias and runs over the inputs in order.
// Bias may be nil.
type Linear struct {
	Weight *Matrix
	Bias   []float32
	In     []Value
	Act    Activation
	Out    Value
}

// LSTM is one long short-term memory step with PyTorch's gate order (i, f, g,
// o): Input is 4H by the width of X, Recurrent 4H by H, Bias the sum of
// PyTorch's two biases. One chain per pre-activation: bias, X, then H.
type LSTM struct {
	Input, Recurrent *Matrix
	Bias             []float32
	X, H, C          Value
	OutH, OutC       Value
}

// GRU is one gated recurrent unit step with PyTorch's gate order (r, z, n).
// Input is 3H by the width of X, Recurrent 3H by H. The biases stay apart: the
// reset gate scales the recurrent part of n with its bias.
type GRU struct {
	Input, Recurrent         *Matrix
	InputBias, RecurrentBias []float32
	X, H                     Value
	OutH                     Value
}

// Attend is dot-product attention over the first Length entries of Memory in
// each row's own slot: softmax(Memory Query) weights the entries' sum. With
// Query = W y this is Luong's general score (Luong et al. 2015, section 3.1).
type Attend struct {
	Query  Value
	Memory FieldID
	Length Arg
	Out    Value
}

// Add is the element-wise sum of two values of one width.
type Add struct {
	A, B Value
	Out  Value
}

// Mean divides a sum over time by how many terms it has, the argument Count,
// which is positive.
type Mean struct {
	Sum   Value
	Count Arg
	Out   Value
}

// TreeLeaf is the cell of a leaf in a binary TreeLSTM (Tai et al. 2015,
// section 3.2, in the form without a parent input). With H the width of the
// outputs, Weight is 3H by the width of X, gate order (i, o, u):
//
//	c = sigmoid(i) tanh(u)
//	h = sigmoid(o) tanh(c)
type TreeLeaf struct {
	Weight     *Matrix
	Bias       []float32
	X          Value
	OutH, OutC Value
}

// TreeNode is the cell of an inner node in a binary TreeLSTM. Weight is 5H by
// 2H over [left h; right h], gate order (i, o, u, left f, right f):
//
//	c = sigmoid(i) tanh(u) + sigmoid(fl) cl + sigmoid(fr) cr
//	h = sigmoid(o) tanh(c)
type TreeNode struct {
	Weight                       *Matrix
	Bias                         []float32
	LeftH, LeftC, RightH, RightC Value
	OutH, OutC                   Value
}

// Greedy reports the most probable token of each row in the node's [Output]:
// the lowest index of the largest logit and its log-softmax. A row whose logits
// are not all finite reports NaN.
type Greedy struct {
	Logits Value
}

// Expose hands a value to the graph as the Values of the node's [Output].
type Expose struct {
	In Value
}

func (Embed) isOp()    {}
func (Load) isOp()     {}
func (Store) isOp()    {}
func (Linear) isOp()   {}
func (LSTM) isOp()     {}
func (GRU) isOp()      {}
func (Attend) isOp()   {}
func (Greedy) isOp()   {}
func (Add) isOp()      {}
func (Mean) isOp()     {}
func (TreeLeaf) isOp() {}
func (TreeNode) isOp() {}
func (Expose) isOp()   {}
