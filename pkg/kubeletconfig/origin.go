// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import "strings"

// Origins maps the path of each field that was set to where it was last set. Fields
// left at their default are absent.
type Origins map[string]Source

// Of returns the source of the field at path, or of the nearest field around
// it: the source of "evictionHard" for "evictionHard[memory.available]" when
// only the former is known.
func (o Origins) Of(path string) Source {
	for p := path; p != ""; p = parentPath(p) {
		if s, ok := o[p]; ok {
			return s
		}
	}
	return Source{}
}

// set records that path, and everything below it, now comes from s.
func (o Origins) set(path string, s Source) {
	for p := range o {
		if isBelow(p, path) {
			delete(o, p)
		}
	}
	o[path] = s
}

// addFile records what one file sets. Entries of a merged map add to those of
// earlier files; elements of a list replace them.
func (o Origins) addFile(file string, doc *document) {
	leaves := map[string]bool{}
	for _, leaf := range doc.leaves {
		if leaf.path == "apiVersion" || leaf.path == "kind" {
			continue
		}
		leaves[leaf.path] = true
		src := Source{File: file, Line: doc.lines[leaf.path]}
		if leaf.merged {
			o[leaf.path] = src
		} else {
			o.set(leaf.path, src)
		}
	}
	for p, line := range doc.lines {
		for q := parentPath(p); q != ""; q = parentPath(q) {
			if leaves[q] {
				o[p] = Source{File: file, Line: line}
				break
			}
		}
	}
}

// isBelow reports whether path p lies inside the value at path root.
func isBelow(p, root string) bool {
	return len(p) > len(root) && strings.HasPrefix(p, root) && (p[len(root)] == '.' || p[len(root)] == '[')
}

// parentPath drops the last ".child" or "[key]" of a field path. Keys may
// contain dots, so a trailing bracket is cut at its opening one.
func parentPath(p string) string {
	if strings.HasSuffix(p, "]") {
		if i := strings.LastIndexByte(p, '['); i >= 0 {
			return p[:i]
		}
	}
	if i := strings.LastIndexByte(p, '.'); i >= 0 {
		return p[:i]
	}
	return ""
}
