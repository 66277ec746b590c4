// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // registers its contract

	"github.com/sextant-node/sextant/pkg/house"
	_ "github.com/sextant-node/sextant/proto/sextant/supervisor/v1" // the same
)

// listed are the methods that the house grants to some peers and not to all.
func listed() map[string][]house.Service {
	all := house.Methods()
	maps.DeleteFunc(all, func(_ string, who []house.Service) bool { return slices.Contains(who, "*") })
	return all
}

// TestRightsAreUsed: a service may call what its code calls, and nothing else. A
// right without a use is only of use to somebody who has taken the service over.
func TestRightsAreUsed(t *testing.T) {
	code := map[house.Service]string{}
	for _, s := range house.Services() {
		err := filepath.WalkDir(filepath.Join(root, "services", string(s)), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			code[s] += string(data)
			return err
		})
		if err != nil && s != house.Bus { // which is in pkg
			t.Fatal(err)
		}
	}
	for method, who := range listed() {
		parts := strings.Split(method, "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(parts[1] + "." + parts[2]))
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		request := "." + string(found.(protoreflect.MethodDescriptor).Input().Name()) + "{"
		for s, text := range code {
			if strings.HasPrefix(parts[1], "sextant."+string(s)+".") || s == house.PodWorker && strings.HasPrefix(parts[1], "runtime.") {
				continue // its own method; and podworker's own connection to the runtime
			}
			if makes, may := strings.Contains(text, request), slices.Contains(who, s); makes != may {
				t.Errorf("%s: %s may call it: %v; its code makes the request (%s}): %v", method, s, may, request, makes)
			}
		}
	}
}

// TestArchitectureCommands: the table of commands that people read is the one that
// decides.
func TestArchitectureCommands(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	group := regexp.MustCompile("((?:`[A-Za-z]+` ?)+): ([a-z, ]+)")
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range group.FindAllStringSubmatch(cells[2], -1) {
			who := strings.Split(strings.TrimSpace(m[2]), ", ")
			slices.Sort(who)
			for name := range strings.FieldsSeq(m[1]) {
				documented[strings.Fields(cells[1])[0]+"."+strings.Trim(name, "`")] = who
			}
		}
	}
	want := map[string][]string{}
	for method, who := range listed() {
		parts := strings.Split(method, "/")
		service := parts[1][strings.LastIndex(parts[1], ".")+1:]
		var names []string
		for _, s := range who {
			names = append(names, string(s))
		}
		slices.Sort(names)
		want[service+"."+parts[2]] = names
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := documented[name]; !slices.Equal(got, want[name]) {
			t.Errorf("docs/architecture.md: %s is for %v, in the program for %v", name, got, want[name])
		}
	}
	for name := range documented {
		if want[name] == nil {
			t.Errorf("docs/architecture.md lists %s, which the program does not have", name)
		}
	}
}
