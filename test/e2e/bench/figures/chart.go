// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"html"
	"strings"
)

// Geometry of the chart, in pixels.
const (
	chartWidth  = 860
	labelWidth  = 380
	barHeight   = 11
	barGap      = 3
	groupGap    = 12
	chartTop    = 64
	valueWidth  = 90
	chartBottom = 20
)

var colours = map[string]string{Floor: "#b8b8b8", Same: "#8f8f8f", Reference: "#7a9cc6", Sextant: "#d9822b"}

// Chart draws a run as SVG: a group of bars for each row, the longest of a group
// as long as the chart is wide, and a mark at the number to beat.
func (r *Run) Chart() string {
	var body strings.Builder
	y := chartTop
	for _, row := range Rows(r.Pods) {
		y = r.group(&body, row, y)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, y+chartBottom)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="10" y="20" font-size="14">Sextant beside the reference kubelet, the same runtime, machine and API server; less is better</text>`+"\n")
	x := 10
	for _, subject := range subjects {
		fmt.Fprintf(&b, `<rect x="%d" y="34" width="12" height="12" fill="%s"/><text x="%d" y="44">%s</text>`+"\n", x, colours[subject], x+17, subject)
		x += 110
	}
	fmt.Fprintf(&b, `<text x="%d" y="44" fill="#c00">| to reach</text>`+"\n", x)
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// group draws a row and returns where the next one begins.
func (r *Run) group(b *strings.Builder, row Row, y int) int {
	limit, limited := r.Limit(row)
	longest, bars := 0.0, 0
	for _, subject := range subjects {
		if v, ok := r.Value(subject, row); ok {
			longest, bars = max(longest, v), bars+1
		}
	}
	if bars == 0 {
		return y
	}
	if limited {
		longest = max(longest, limit)
	}
	wide := func(v float64) float64 {
		if longest == 0 {
			return 0
		}
		return v / longest * (chartWidth - labelWidth - valueWidth)
	}
	fmt.Fprintf(b, `<text x="10" y="%d">%s</text>`+"\n", y+barHeight, html.EscapeString(row.Label))
	top := y
	for _, subject := range subjects {
		v, ok := r.Value(subject, row)
		if !ok {
			continue
		}
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d" font-size="10">%s</text>`+"\n",
			labelWidth, y, wide(v), barHeight, colours[subject], labelWidth+wide(v)+4, y+barHeight-2, html.EscapeString(number(v, row.Unit)))
		y += barHeight + barGap
	}
	if limited {
		x := labelWidth + wide(limit)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c00"/>`+"\n", x, top-2, x, y)
	}
	return y + groupGap
}
