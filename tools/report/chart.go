package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart is a line chart with logarithmic axes.
type chart struct {
	title, x, y string
	format      func(float64) string // of the values of the y axis
	lines       []line
}

type line struct {
	name   string
	points []point // in the order of x, all greater than 0
}

type point struct{ x, y float64 }

const (
	width, height = 640, 400
	left, right   = 84, 40
	top           = 40
	bottom        = 52
	legendLine    = 18
)

// lightColors and darkColors are those of the lines, which also differ in their marks and dashes.
var (
	lightColors = [colors]string{"#0550ae", "#b35900", "#116329", "#8250df", "#a40e26", "#4d5560", "#0a7480"}
	darkColors  = [colors]string{"#79c0ff", "#ffa657", "#7ee787", "#d2a8ff", "#ff9492", "#c9d1d9", "#56d4dd"}
)

// style returns the style sheet for both themes.
func style() string {
	theme := func(back, text, grid, axis string, lines [colors]string) string {
		css := fmt.Sprintf(".back{fill:%s}text{fill:%s}.grid{stroke:%s}.axis{stroke:%s}", back, text, grid, axis)
		for i, c := range lines {
			css += fmt.Sprintf(".c%d polyline{stroke:%[2]s}.c%[1]d .mark{fill:%[2]s}", i, c)
		}
		return css
	}
	return "<style>text{font:13px system-ui,sans-serif}.title{font-size:15px;font-weight:600}polyline{fill:none;stroke-width:2}\n" +
		theme("#fff", "#1f2328", "#d1d9e0", "#59636e", lightColors) +
		"\n@media(prefers-color-scheme:dark){" + theme("#0d1117", "#e6edf3", "#30363d", "#9198a1", darkColors) + "}</style>"
}

const colors = 7

// dashes of lines with the same color, or for readers who do not see it.
var dashes = []string{"", "6 3", "2 3", "8 3 2 3"}

// svg returns the chart as a file, or "" if there is nothing to draw.
func (c chart) svg() string {
	lowX, highX, lowY, highY, ok := c.bounds()
	if !ok {
		return ""
	}
	all := height + legendLine*((len(c.lines)+1)/2)
	atX := func(x float64) float64 {
		return left + (width-left-right)*(math.Log(x)-math.Log(lowX))/(math.Log(highX)-math.Log(lowX))
	}
	atY := func(y float64) float64 {
		return height - bottom - (height-top-bottom)*(math.Log(y)-math.Log(lowY))/(math.Log(highY)-math.Log(lowY))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n%s\n",
		width, all, width, all, html.EscapeString(c.title+", "+c.y+" by "+c.x), style())
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/>`+"\n", width, all)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="20">%s</text>`+"\n", left, html.EscapeString(c.title))
	for _, y := range ticks(lowY, highY) {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, atY(y), width-right, atY(y), left-8, atY(y)+4, html.EscapeString(c.format(y)))
	}
	for _, x := range c.xs() {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			atX(x), top, atX(x), height-bottom, atX(x), height-bottom+18, count(x))
	}
	fmt.Fprintf(&b, `<polyline class="axis" style="stroke-width:1" points="%d,%d %d,%d %d,%d"/>`+"\n", left, top, left, height-bottom, width-right, height-bottom)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		(left+width-right)/2, height-bottom+38, html.EscapeString(c.x), (top+height-bottom)/2, html.EscapeString(c.y))
	for i, l := range c.lines {
		color, dash := fmt.Sprintf("c%d", i%colors), dashes[i%len(dashes)]
		var points []string
		for _, p := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", atX(p.x), atY(p.y)))
		}
		fmt.Fprintf(&b, `<g class="%s"><polyline stroke-dasharray="%s" points="%s"/>`, color, dash, strings.Join(points, " "))
		for _, p := range l.points {
			b.WriteString(mark(i, atX(p.x), atY(p.y)))
		}
		x, y := float64(left+i%2*(width-left-right)/2), float64(height+6+i/2*legendLine)
		fmt.Fprintf(&b, `<polyline stroke-dasharray="%s" points="%.0f,%.0f %.0f,%.0f"/>%s<text x="%.0f" y="%.0f">%s</text></g>`+"\n",
			dash, x, y, x+28, y, mark(i, x+14, y), x+36, y+4, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// mark draws the point of the line with a number.
func mark(i int, x, y float64) string {
	switch i % 3 {
	case 0:
		return fmt.Sprintf(`<circle class="mark" cx="%.1f" cy="%.1f" r="4"/>`, x, y)
	case 1:
		return fmt.Sprintf(`<rect class="mark" x="%.1f" y="%.1f" width="8" height="8"/>`, x-4, y-4)
	}
	return fmt.Sprintf(`<path class="mark" d="M%.1f %.1fl5 9h-10z"/>`, x, y-6)
}

// bounds returns the ends of the axes: x as in the data, y at powers of ten. ok is false without
// two points.
func (c chart) bounds() (lowX, highX, lowY, highY float64, ok bool) {
	lowX, lowY = math.Inf(1), math.Inf(1)
	for _, l := range c.lines {
		for _, p := range l.points {
			lowX, highX, lowY, highY = min(lowX, p.x), max(highX, p.x), min(lowY, p.y), max(highY, p.y)
		}
	}
	if lowX >= highX || lowX <= 0 || lowY <= 0 {
		return 0, 0, 0, 0, false
	}
	lowY, highY = math.Pow(10, math.Floor(math.Log10(lowY))), math.Pow(10, math.Ceil(math.Log10(highY)))
	if lowY == highY {
		highY *= 10
	}
	return lowX, highX, lowY, highY, true
}

// ticks returns the powers of ten from low to high.
func ticks(low, high float64) (all []float64) {
	for n := math.Round(math.Log10(low)); n <= math.Round(math.Log10(high)); n++ {
		all = append(all, math.Pow(10, n))
	}
	return all
}

// xs returns the values of the data on the x axis, each once.
func (c chart) xs() (all []float64) {
	seen := map[float64]bool{}
	for _, l := range c.lines {
		for _, p := range l.points {
			if !seen[p.x] {
				seen[p.x] = true
				all = append(all, p.x)
			}
		}
	}
	return all
}

// count formats a number with commas.
func count(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%g", v)
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
