// Package plot draws line plots as SVG: latency over throughput, cumulative
// distributions, figures over time.
//
// A [Figure] is drawn by [Figure.WriteSVG]. The same figure gives the same
// bytes, on every machine: coordinates are rounded to a tenth of a pixel,
// nothing depends on fonts or on the time. Colours follow the reader's choice of
// a light or dark page. Lines differ in their dashes as well once the eight
// colours are used up, and points may have markers.
//
// Axes end at round numbers. A linear axis begins at zero unless all values are
// far from it. A logarithmic axis has ticks at 1, 2 and 5 times the powers of
// ten, or at the powers alone where those would crowd. What cannot be drawn, as
// an infinite value or one that is not positive on a logarithmic axis, is a gap in
// its line.
package plot
