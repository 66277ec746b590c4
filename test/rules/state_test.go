// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStatePage: docs/state.md lists every table of every state file, and every
// package that writes another durable file; nothing else.
func TestStatePage(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/state.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tables, writers []string
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		switch {
		case len(cells) == 8 && strings.HasSuffix(cells[2], ".db"):
			tables = append(tables, strings.Join(cells[1:4], " "))
		case len(cells) == 7 && strings.Contains(cells[1], "/"):
			writers = append(writers, cells[1])
		}
	}
	opens := regexp.MustCompile(`StoreConfig\((?:"([\w.]+)"|[\w.]+)\)`)
	named := regexp.MustCompile(`(?m)(?:FileName|const File) = "([\w.]+)"`)
	makes := regexp.MustCompile(`NewTable\([\w.]+, "([\w-]+)"|= open\(k, "([\w-]+)"`)
	files, inCode, inUse := map[string]string{}, map[string][]string{}, map[string]bool{}
	opened := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		if !product(name) || strings.HasPrefix(name, "pkg/file/") || strings.HasPrefix(name, "pkg/store/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "file.Replace(") || strings.Contains(string(text), "NewFileStoreWithLogger(") {
			inUse[filepath.ToSlash(filepath.Dir(name))] = true
		}
		service, ok := strings.CutPrefix(name, "services/")
		if !ok {
			return nil
		}
		service, _, _ = strings.Cut(service, "/")
		for _, m := range opens.FindAllStringSubmatch(string(text), -1) {
			opened[service] = true
			if m[1] != "" {
				files[service] = m[1]
			}
		}
		if strings.Contains(string(text), "store.Config") {
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				files[service] = m[1]
			}
		}
		for _, m := range makes.FindAllStringSubmatch(string(text), -1) {
			inCode[service] = append(inCode[service], m[1]+m[2])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for service, names := range inCode {
		if !opened[service] || files[service] == "" {
			t.Errorf("%s has tables in a file of its own making: open it with Kit.StoreConfig", service)
		}
		for _, name := range names {
			want = append(want, service+" "+files[service]+" "+name)
		}
	}
	differ(t, "state file's table", tables, want)
	var packages []string
	for name := range inUse {
		packages = append(packages, name)
	}
	differ(t, "package that writes files", writers, packages)
}

// differ reports what is only on the page, or only in the program.
func differ(t *testing.T, what string, page, program []string) {
	t.Helper()
	if len(program) < 5 {
		t.Errorf("only %d in the program: %s", len(program), what)
	}
	for _, one := range page {
		if !slices.Contains(program, one) {
			t.Errorf("docs/state.md lists a %s that does not exist: %s", what, one)
		}
	}
	for _, one := range program {
		if !slices.Contains(page, one) {
			t.Errorf("docs/state.md lacks a %s: %s", what, one)
		}
	}
}
