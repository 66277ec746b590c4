// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSupportPage: docs/support.md is what the support tables say.
func TestSupportPage(t *testing.T) {
	const page = "../../docs/support.md"
	got := supportPage()
	if *update {
		if err := os.WriteFile(page, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	for line := range bytes.Lines(got) {
		if !bytes.Contains(want, line) {
			t.Errorf("not on the page: %s", line)
		}
	}
	t.Errorf("%s is not what the tables say: go test ./pkg/kubeletconfig -run=TestSupportPage -update", page)
}

// supportPage prints the tables as Markdown.
func supportPage() []byte {
	var b bytes.Buffer
	b.WriteString(`# What is honoured of a kubelet's configuration

Every field of KubeletConfiguration, every flag and every feature gate of the node in a kubelet v1.36. This page is
printed from the tables that the program goes by (` + "`go test ./pkg/kubeletconfig -run=TestSupportPage -update`" + `).
` + "`sextant config explain NAME`" + ` says the same on a node.

- **honoured**: as in a kubelet.
- **partly**: it has some of its effect; a warning at the start when it is changed.
- **warned**: accepted without effect; a warning at the start when it is changed.
- **refused**: ignoring it would be unsafe; the node does not start when it is changed.

Values in brackets are honoured although others are not.
`)
	table := func(title, name string, columns []string, rows []Support, cells func(Support) []string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | support | %s |\n|---|---|%s\n", title, name, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
		for _, s := range rows {
			level := string(s.Level)
			if len(s.Values) > 0 {
				level += " (`" + strings.Join(s.Values, "`, `") + "`)"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, level, strings.Join(cells(s), " | "))
		}
	}
	table("Fields", "field", []string{"what happens instead"}, FieldSupport(), func(s Support) []string { return []string{cell(s.Reason)} })
	table("Flags", "flag", []string{"field behind it", "default", "what happens instead"}, FlagSupport(), func(s Support) []string {
		return []string{code(s.Field), code(s.Default), cell(s.Reason)}
	})
	table("Feature gates", "gate", []string{"default", "what happens instead"}, GateSupport(), func(s Support) []string {
		return []string{code(s.Default), cell(s.Reason)}
	})
	return b.Bytes()
}

func cell(text string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text) }

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}
