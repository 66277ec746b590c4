// SPDX-License-Identifier: Apache-2.0

// Package usage makes readings of cgroups out of the kernel's own words: the
// files of cgroup version 1 and 2, and a few of /proc. It is pure: text in,
// readings out, and time is an input.
//
// It owns nothing. What a kernel does not have, or says in words not understood,
// is missing from the reading and spoils nothing else.
package usage

import (
	"bytes"
	"math"
	"strconv"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// Source reads one file of a cgroup: on version 1 in the hierarchy of a
// controller, on version 2 the controller does not matter. What it returns
// is good until the next call.
type Source interface {
	Read(controller, file string) (text []byte, ok bool)
}

// unlimited is more than any machine has: what version 1 shows where no bound is
// set, rounded by the kernel to its page size (cAdvisor's rule).
const unlimited = 1 << 62

// number reads a file with one number; "max" is the largest.
func number(src Source, controller, file string) (uint64, bool) {
	text, ok := src.Read(controller, file)
	if !ok {
		return 0, false
	}
	return parse(bytes.TrimSpace(text))
}

func value(src Source, controller, file string) uint64 {
	n, _ := number(src, controller, file)
	return n
}

// bound reads a limit; nil where there is none.
func bound(src Source, controller, file string) *uint64 {
	n, ok := number(src, controller, file)
	if !ok || n > unlimited {
		return nil
	}
	return &n
}

func parse(text []byte) (uint64, bool) {
	if string(text) == "max" {
		return math.MaxUint64, true
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil
}

// pairs calls each for every line of a name and a number.
func pairs(text []byte, each func(name []byte, n uint64)) {
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			continue
		}
		if n, ok := parse(bytes.TrimSpace(rest)); ok {
			each(name, n)
		}
	}
}

// pressure reads a file of pressure stall information, nil where the kernel has
// none.
func pressure(src Source, file string) *resourcev1.Stalls {
	text, ok := src.Read("", file)
	if !ok {
		return nil
	}
	return ParseStalls(text)
}

// ParseStalls reads pressure stall information (kernel's accounting/psi).
func ParseStalls(text []byte) *resourcev1.Stalls {
	s := &resourcev1.Stalls{Some: &resourcev1.Stall{}, Full: &resourcev1.Stall{}}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		to := s.Some
		if string(fields[0]) == "full" {
			to = s.Full
		}
		for _, field := range fields[1:] {
			name, text, _ := bytes.Cut(field, []byte("="))
			if string(name) == "total" {
				to.Total, _ = parse(text)
				continue
			}
			share, err := strconv.ParseFloat(string(text), 64)
			if err != nil {
				continue
			}
			switch string(name) {
			case "avg10":
				to.Avg10 = share
			case "avg60":
				to.Avg60 = share
			case "avg300":
				to.Avg300 = share
			}
		}
	}
	return s
}
