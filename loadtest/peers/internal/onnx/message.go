package onnx

import (
	"encoding/binary"
	"math"
)

// message is a Protocol Buffers message being encoded. Only what models need is
// there: variable-length integers and fields with a length.
type message []byte

// The wire types of fields.
const (
	wireVarint = 0
	wireBytes  = 2
)

// number appends an integer field.
func (m *message) number(field int, value int64) {
	*m = binary.AppendUvarint(*m, uint64(field<<3|wireVarint))
	*m = binary.AppendUvarint(*m, uint64(value))
}

// bytes appends a field of bytes, a string or a message.
func (m *message) bytes(field int, value []byte) {
	*m = binary.AppendUvarint(*m, uint64(field<<3|wireBytes))
	*m = binary.AppendUvarint(*m, uint64(len(value)))
	*m = append(*m, value...)
}

// text appends a string field.
func (m *message) text(field int, value string) { m.bytes(field, []byte(value)) }

// The numbers of the fields that are used, from onnx.proto.
const (
	modelIRVersion    = 1
	modelProducer     = 2
	modelGraph        = 7
	modelOperatorSets = 8

	operatorSetDomain  = 1
	operatorSetVersion = 2

	graphNode        = 1
	graphName        = 2
	graphInitializer = 5
	graphInput       = 11
	graphOutput      = 12

	nodeInput     = 1
	nodeOutput    = 2
	nodeName      = 3
	nodeOperator  = 4
	nodeAttribute = 5
	nodeDomain    = 7

	attributeName    = 1
	attributeInteger = 3
	attributeType    = 20

	tensorDims = 1
	tensorType = 2
	tensorName = 8
	tensorRaw  = 9

	valueName          = 1
	valueType          = 2
	typeTensor         = 1
	tensorTypeElement  = 1
	tensorTypeShape    = 2
	shapeDimension     = 1
	dimensionValue     = 1
	attributeTypeInt   = 2
	elementFloat       = 1
	elementInt8        = 3
	irVersion          = 8
	operatorSet        = 17
	microsoftOperators = "com.microsoft"
)

// floats encodes a constant tensor of float32 numbers.
func floats(name string, values []float32, dims ...int) message {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return tensor(name, elementFloat, raw, dims)
}

// int8s encodes a constant tensor of 8-bit integers.
func int8s(name string, values []int8, dims ...int) message {
	raw := make([]byte, len(values))
	for i, v := range values {
		raw[i] = byte(v)
	}
	return tensor(name, elementInt8, raw, dims)
}

func tensor(name string, element int64, raw []byte, dims []int) message {
	var m message
	for _, d := range dims {
		m.number(tensorDims, int64(d))
	}
	m.number(tensorType, element)
	m.text(tensorName, name)
	m.bytes(tensorRaw, raw)
	return m
}

// value encodes the declaration of a float32 input or output.
func value(name string, dims ...int) message {
	var shape, of, kind, m message
	for _, d := range dims {
		var dimension message
		dimension.number(dimensionValue, int64(d))
		shape.bytes(shapeDimension, dimension)
	}
	of.number(tensorTypeElement, elementFloat)
	of.bytes(tensorTypeShape, shape)
	kind.bytes(typeTensor, of)
	m.text(valueName, name)
	m.bytes(valueType, kind)
	return m
}

// node encodes an operator. An empty name among the inputs or outputs is one
// that is left out.
func node(operator, domain string, inputs, outputs []string, attributes map[string]int64) message {
	var m message
	for _, name := range inputs {
		m.text(nodeInput, name)
	}
	for _, name := range outputs {
		m.text(nodeOutput, name)
	}
	m.text(nodeName, operator)
	m.text(nodeOperator, operator)
	for name, value := range attributes {
		var a message
		a.text(attributeName, name)
		a.number(attributeInteger, value)
		a.number(attributeType, attributeTypeInt)
		m.bytes(nodeAttribute, a)
	}
	m.text(nodeDomain, domain)
	return m
}

// graph is a model being built.
type graph struct{ body message }

func (g *graph) node(n message)     { g.body.bytes(graphNode, n) }
func (g *graph) constant(t message) { g.body.bytes(graphInitializer, t) }
func (g *graph) input(v message)    { g.body.bytes(graphInput, v) }
func (g *graph) output(v message)   { g.body.bytes(graphOutput, v) }

// model returns the encoded model.
func (g *graph) model() []byte {
	var m message
	m.number(modelIRVersion, irVersion)
	m.text(modelProducer, "peers")
	g.body.text(graphName, "case")
	m.bytes(modelGraph, g.body)
	for domain, version := range map[string]int64{"": operatorSet, microsoftOperators: 1} {
		var set message
		set.text(operatorSetDomain, domain)
		set.number(operatorSetVersion, version)
		m.bytes(modelOperatorSets, set)
	}
	return m
}
