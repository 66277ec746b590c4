// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change that the tests must notice.
type mutant struct {
	name, promise string
	file          string   // changed file, from the root of the repository
	test          []string // arguments of go test
	edits         []edit
}

// edit replaces a text that a file has exactly once.
type edit struct{ old, new string }

// load reads all mutants of the folder dir.
func load(dir string) ([]mutant, error) {
	lists, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	named := map[string]string{}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		found, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		for _, m := range found {
			if other := named[m.name]; other != "" {
				return nil, fmt.Errorf("%s: %s has a mutant %s already", list, other, m.name)
			}
			named[m.name] = list
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no mutants", dir)
	}
	return all, nil
}

// parse reads a list of mutants.
func parse(text string) ([]mutant, error) {
	head, text, _ := strings.Cut("\n"+text, "\n=== ")
	if strings.TrimSpace(head) != "" {
		return nil, fmt.Errorf("text before the first mutant: %q", strings.TrimSpace(head))
	}
	var all []mutant
	for one := range strings.SplitSeq(text, "\n=== ") {
		m, err := parseOne(one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseOne(text string) (mutant, error) {
	head, changes, _ := strings.Cut(text, "\n--- old\n")
	name, head, _ := strings.Cut(head, "\n")
	m := mutant{name: strings.TrimSpace(name)}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if file, ok := strings.CutPrefix(line, "file: "); ok {
			m.file = file
		} else if test, ok := strings.CutPrefix(line, "test: "); ok {
			m.test = strings.Fields(test)
		} else {
			m.promise = strings.TrimSpace(m.promise + " " + line)
		}
	}
	for pair := range strings.SplitSeq(changes, "\n--- old\n") {
		// An empty replacement leaves no line between the two heads.
		before, after, ok := strings.Cut(strings.TrimRight(pair, "\n")+"\n", "\n--- new\n")
		if !ok || strings.TrimSpace(before) == "" {
			return m, fmt.Errorf("an edit needs a text after --- old, and --- new")
		}
		m.edits = append(m.edits, edit{strings.TrimRight(before, "\n"), strings.TrimRight(after, "\n")})
	}
	switch {
	case m.name == "" || strings.ContainsAny(m.name, " /"):
		return m, fmt.Errorf("the name %q is empty, or has a space or a slash", m.name)
	case m.promise == "":
		return m, fmt.Errorf("no promise is named")
	case m.file == "" || len(m.test) == 0:
		return m, fmt.Errorf("file: or test: is missing")
	}
	return m, nil
}

// apply returns the changed text of the file.
func (m mutant) apply(source string) (string, error) {
	for _, e := range m.edits {
		if n := strings.Count(source, e.old); n != 1 {
			return "", fmt.Errorf("%s has the old text %d times: %q", m.file, n, e.old)
		}
		changed := strings.Replace(source, e.old, e.new, 1)
		if changed == source {
			return "", fmt.Errorf("%s: the new text is the old one: %q", m.file, e.old)
		}
		source = changed
	}
	return source, nil
}
