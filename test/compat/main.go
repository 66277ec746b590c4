// SPDX-License-Identifier: Apache-2.0

// Command compat prints docs/compatibility.md: what tests have seen, what is possible and
// has not been seen, and what is not possible.
//
//	compat [-add FILE] [-keep docs/compatibility.jsonl] [-out docs/compatibility.md]
//
// FILE is what tests have written (SEXTANT_SEEN); of each package of tests the newest run on
// each kind of machine is kept. make compatibility runs the tests and this.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/test/compat/seen"
)

func main() {
	add := flag.String("add", "", "runs to add")
	keep := flag.String("keep", "docs/compatibility.jsonl", "the runs that are kept")
	out := flag.String("out", "docs/compatibility.md", "the page")
	flag.Parse()
	if err := run(*add, *keep, *out); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func run(add, keep, out string) error {
	runs, err := load(keep)
	if err != nil {
		return err
	}
	if add != "" {
		more, err := load(add)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			return fmt.Errorf("%s has no run", add)
		}
		runs = newest(append(runs, more...))
		var text bytes.Buffer
		for _, r := range runs {
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			text.Write(append(line, '\n'))
		}
		if err := os.WriteFile(keep, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(out, []byte(page(runs)), 0o644)
}

func load(path string) ([]seen.Run, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return seen.Read(data)
}

// newest are the newest run of each package of tests on each kind of machine. A run of some
// of the tests does not take the place of one of all.
func newest(runs []seen.Run) []seen.Run {
	best := map[string]seen.Run{}
	for _, r := range runs {
		key := strings.Join(append([]string{r.Package, r.Tests, r.System, r.Kernel, r.Arch, r.Cgroup}, r.With...), "|")
		if r.Time.After(best[key].Time) {
			best[key] = r
		}
	}
	all := make([]seen.Run, 0, len(best))
	for _, r := range best {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b seen.Run) int {
		return strings.Compare(a.Package+a.Tests+a.System+a.Kernel+strings.Join(a.With, ","), b.Package+b.Tests+b.System+b.Kernel+strings.Join(b.With, ","))
	})
	return all
}
