package plot

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sizes, pixels.
const (
	margin       = 16
	titleHeight  = 22
	textHeight   = 17
	tickRoom     = 10
	letterWidth  = 6.6 // of the average letter at the size of the labels
	swatch       = 26  // the piece of line in the legend
	legendSpace  = 18  // between two names
	ticksEachWay = 6
)

// style has the colours of a light and of a dark page. Colours are told apart
// with the common kinds of colour blindness.
const style = `<style>
text{font:12px system-ui,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.t{font-size:15px;font-weight:600}.m{fill:#59636e}
.b{fill:#fff}.g{stroke:#d1d9e0;stroke-width:1}.a{stroke:#59636e;stroke-width:1;fill:none}
.l{fill:none;stroke-width:2;stroke-linejoin:round}.r{fill:none;stroke:#59636e;stroke-dasharray:2 4}
.c0{stroke:#0072b2;color:#0072b2}.c1{stroke:#d55e00;color:#d55e00}.c2{stroke:#009e73;color:#009e73}.c3{stroke:#aa4499;color:#aa4499}
.c4{stroke:#b8860b;color:#b8860b}.c5{stroke:#2f9fd8;color:#2f9fd8}.c6{stroke:#7a3b12;color:#7a3b12}.c7{stroke:#1f2328;color:#1f2328}
.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}.p{fill:currentColor;stroke:none}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}.m{fill:#9198a1}.b{fill:#0d1117}.g{stroke:#30363d}.a{stroke:#9198a1}.r{stroke:#9198a1}
.c0{stroke:#58a6ff;color:#58a6ff}.c1{stroke:#ff8f4a;color:#ff8f4a}.c2{stroke:#2fd6a3;color:#2fd6a3}.c3{stroke:#e08ad6;color:#e08ad6}
.c4{stroke:#e3b341;color:#e3b341}.c5{stroke:#a5d6ff;color:#a5d6ff}.c6{stroke:#d2a07a;color:#d2a07a}.c7{stroke:#f0f6fc;color:#f0f6fc}
}
</style>
`

const colours = 8

// canvas is a figure that is being drawn.
type canvas struct {
	*Figure
	out           bytes.Buffer
	width, height float64
	x, y          axis
	legend        [][]int // indices of series, a row each
}

// WriteSVG draws the figure. It writes once; an error is that of [Figure.Validate]
// or of w.
func (f *Figure) WriteSVG(w io.Writer) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("plot %q: %w", f.Title, err)
	}
	c := &canvas{Figure: f, width: defaultWidth, height: defaultHeight}
	if f.Width > 0 {
		c.width = float64(f.Width)
	}
	if f.Height > 0 {
		c.height = float64(f.Height)
	}
	c.layOut()
	c.frame()
	for i := range f.Series {
		c.series(i)
	}
	c.names()
	c.out.WriteString("</svg>\n")
	if _, err := w.Write(c.out.Bytes()); err != nil {
		return fmt.Errorf("plot %q: %w", f.Title, err)
	}
	return nil
}

// layOut chooses axes and margins.
func (c *canvas) layOut() {
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range c.Series {
		s := &c.Series[i]
		for j := range s.X {
			if c.drawable(s.X[j], s.Y[j]) {
				lowX, highX = min(lowX, s.X[j]), max(highX, s.X[j])
				lowY, highY = min(lowY, s.Y[j]), max(highY, s.Y[j])
			}
		}
	}
	c.x, c.y = newAxis(lowX, highX, c.LogX, ticksEachWay), newAxis(lowY, highY, c.LogY, ticksEachWay)
	c.rows()
	widest := 0
	for _, text := range c.y.labelTexts {
		widest = max(widest, len(text))
	}
	top := float64(margin)
	for _, text := range []string{c.Title, c.Subtitle} {
		if text != "" {
			top += titleHeight
		}
	}
	c.x.from = margin + textHeight + tickRoom + float64(widest)*letterWidth
	c.x.to = c.width - margin - 2*letterWidth
	c.y.from = c.height - margin - 2*textHeight - tickRoom - float64(len(c.legend))*(textHeight+4)
	c.y.to = top + 4
}

// rows distributes the legend.
func (c *canvas) rows() {
	at := math.Inf(1)
	for i := range c.Series {
		if c.Series[i].Name == "" {
			continue
		}
		w := nameWidth(c.Series[i].Name)
		if at+w > c.width-2*margin {
			c.legend, at = append(c.legend, nil), 0
		}
		last := len(c.legend) - 1
		c.legend[last] = append(c.legend[last], i)
		at += w
	}
}

func nameWidth(name string) float64 {
	return swatch + 6 + letterWidth*float64(utf8.RuneCountInString(name)) + legendSpace
}

// frame draws the page, the grid, the axes and their texts.
func (c *canvas) frame() {
	fmt.Fprintf(&c.out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" role="img"><title>%[3]s</title>`+"\n",
		px(c.width), px(c.height), escape(c.Title))
	c.out.WriteString(style)
	fmt.Fprintf(&c.out, `<rect class="b" width="%s" height="%s"/>`+"\n", px(c.width), px(c.height))
	y := float64(margin) + 8
	if c.Title != "" {
		c.text(margin, y, "t", "start", c.Title)
		y += titleHeight - 2
	}
	if c.Subtitle != "" {
		c.text(margin, y, "m", "start", c.Subtitle)
	}
	for i, v := range c.x.ticks {
		at := c.x.at(v)
		c.line("g", at, c.y.from, at, c.y.to)
		c.text(at, c.y.from+textHeight, "", "middle", c.x.labelTexts[i])
	}
	for i, v := range c.y.ticks {
		at := c.y.at(v)
		c.line("g", c.x.from, at, c.x.to, at)
		c.text(c.x.from-tickRoom+2, at+4, "", "end", c.y.labelTexts[i])
	}
	fmt.Fprintf(&c.out, `<path class="a" d="M%s %sV%sH%s"/>`+"\n", px(c.x.from), px(c.y.to), px(c.y.from), px(c.x.to))
	c.text((c.x.from+c.x.to)/2, c.y.from+2*textHeight+2, "m", "middle", c.XLabel)
	middle := (c.y.from + c.y.to) / 2
	fmt.Fprintf(&c.out, `<g transform="rotate(-90 %[1]s %[2]s)">`, px(margin+4), px(middle))
	c.text(margin+4, middle, "m", "middle", c.YLabel)
	c.out.WriteString("</g>\n")
}

// series draws a line and its markers.
func (c *canvas) series(i int) {
	s := &c.Series[i]
	var path, markers strings.Builder
	gap, lastY := true, ""
	for j := range s.X {
		if !c.drawable(s.X[j], s.Y[j]) {
			gap = true
			continue
		}
		x, y := px(c.x.at(s.X[j])), px(c.y.at(s.Y[j]))
		switch {
		case gap:
			path.WriteString("M" + x + " " + y)
		case s.Steps:
			path.WriteString("L" + x + " " + lastY + "V" + y)
		default:
			path.WriteString("L" + x + " " + y)
		}
		gap, lastY = false, y
		if s.Markers {
			fmt.Fprintf(&markers, `<circle class="p" cx="%s" cy="%s" r="3.5"/>`, x, y)
		}
	}
	if path.Len() > 0 {
		fmt.Fprintf(&c.out, `<g class="%s"><path class="%s" d="%s"/>%s</g>`+"\n", c.colour(i), lineClass(c.Series, i), path.String(), markers.String())
	}
}

// names draws the legend.
func (c *canvas) names() {
	for row, series := range c.legend {
		x, y := float64(margin), c.height-margin+4-float64(len(c.legend)-1-row)*(textHeight+4)
		for _, i := range series {
			fmt.Fprintf(&c.out, `<g class="%s"><path class="%s" d="M%s %sh%d"/></g>`+"\n", c.colour(i), lineClass(c.Series, i), px(x), px(y-4), swatch)
			c.text(x+swatch+6, y, "", "start", c.Series[i].Name)
			x += nameWidth(c.Series[i].Name)
		}
	}
}

// order is the place of a series among those that have colours.
func order(series []Series, i int) int {
	n := 0
	for j := range i {
		if !series[j].Reference {
			n++
		}
	}
	return n
}

func (c *canvas) colour(i int) string {
	if c.Series[i].Reference {
		return "a"
	}
	return "c" + strconv.Itoa(order(c.Series, i)%colours)
}

func lineClass(series []Series, i int) string {
	if series[i].Reference {
		return "r"
	}
	if dash := order(series, i) / colours; dash > 0 {
		return "l d" + strconv.Itoa(dash)
	}
	return "l"
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.out, `<path class="%s" d="M%s %sL%s %s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

func (c *canvas) text(x, y float64, class, anchor, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(&c.out, `<text x="%s" y="%s" text-anchor="%s"`, px(x), px(y), anchor)
	if class != "" {
		fmt.Fprintf(&c.out, ` class="%s"`, class)
	}
	fmt.Fprintf(&c.out, ">%s</text>\n", escape(text))
}

// px writes a coordinate to a tenth of a pixel.
func px(v float64) string {
	tenths := int64(math.Round(v * 10))
	if tenths%10 == 0 {
		return strconv.FormatInt(tenths/10, 10)
	}
	return strconv.FormatFloat(float64(tenths)/10, 'f', 1, 64)
}

// escape makes a text part of XML; what XML cannot hold is left out.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&quot;")
		case r < ' ', r == utf8.RuneError, r == 0xfffe, r == 0xffff:
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
