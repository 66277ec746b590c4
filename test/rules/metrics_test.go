// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// families are metric names as they stand in the code and in the page; one that
// ends with an underscore or a star is the beginning of several.
var (
	inCode = regexp.MustCompile(`"((?:kubelet|sextant|prober|kubernetes|volume_manager|volume_operation|storage|reconstruct|force_cleaned)_[a-z_]+)"`)
	inPage = regexp.MustCompile("`([a-z]+_[a-z_]+\\*?)`")
)

// TestMetricsPage compares docs/metrics.md with the names in the services: a
// family without an owner there, or an owner without its family, is a lie.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, owned, _ := strings.Cut(string(page), "## Who counts what")
	owned, _, _ = strings.Cut(owned, "## Where the meaning")
	var code strings.Builder
	err = filepath.WalkDir("../../services", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := inCode.FindAllStringSubmatch(code.String(), -1)
	if len(named) < 50 {
		t.Fatalf("only %d families in the services", len(named))
	}
	for _, m := range named {
		if m[1] == "kubelet_internal_checkpoint" {
			continue // a file
		}
		if !strings.Contains(string(page), "`"+m[1]) {
			t.Errorf("docs/metrics.md does not tell whose %s is", m[1])
		}
	}
	for _, m := range inPage.FindAllStringSubmatch(owned, -1) {
		name := strings.TrimSuffix(m[1], "*")
		if strings.HasPrefix(name, "rest_client_") || strings.HasPrefix(name, "apiserver_") {
			continue // a library has the name
		}
		if !strings.Contains(code.String(), `"`+name) {
			t.Errorf("docs/metrics.md gives %s an owner, but no service has it", m[1])
		}
	}
}
