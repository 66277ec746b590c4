// SPDX-License-Identifier: Apache-2.0

// Package rules states the rules of the house that a compiler does not check,
// each with its reason, and fails when one is broken.
package rules

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

const module = "github.com/sextant-node/sextant/"

// root of the repository, seen from here.
const root = "../.."

type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	GoFiles    []string
	Imports    []string
}

// golist is what go list says, asked once.
var golist = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports", "./...")
	cmd.Dir = root
	return cmd.Output()
})

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := golist()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	decoder := json.NewDecoder(bytes.NewReader(out))
	for decoder.More() {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	if len(all) < 30 {
		t.Fatalf("only %d packages found", len(all))
	}
	return all
}

func within(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
	})
}

// product reports whether a package ends up in the program.
func product(path string) bool { return within(path, "cmd", "pkg", "services", "proto") }

func TestImports(t *testing.T) {
	cores := pureCores(t)
	impure := []string{
		"google.golang.org/grpc", "github.com/nats-io", "net", "net/http", "os", "log", "log/slog",
		"k8s.io/client-go/kubernetes", "k8s.io/utils/clock",
	}
	rules := []struct {
		reason  string
		applies func(string) bool
		forbids func(from, to string) bool
	}{
		{
			"the product takes facts from Kubernetes, never its code",
			func(string) bool { return true },
			func(_, to string) bool { return within(to, "k8s.io/kubernetes") },
		},
		{
			"a service that needs another one's code has a fact in the wrong place: move the fact",
			func(from string) bool { return within(from, "services") },
			func(from, to string) bool {
				if !within(to, module+"services") {
					return false
				}
				service := func(path string) string { return strings.Split(path, "/")[1] }
				return service(from) != service(strings.TrimPrefix(to, module))
			},
		},
		{
			"a judgement must be reproducible from a text file: no I/O, no clock, no log in decision cores",
			func(from string) bool { return slices.Contains(cores, from) },
			func(_, to string) bool {
				return slices.Contains(impure, to) || within(to, "google.golang.org/grpc", "github.com/nats-io")
			},
		},
		{
			"only the broker dials the container runtime; purging a node is the supervisor's, after the services stopped",
			func(from string) bool {
				return within(from, "services") && !within(from, "services/podworker/internal/broker", "services/supervisor")
			},
			func(_, to string) bool {
				return within(to, "k8s.io/cri-client/pkg") && !within(to, "k8s.io/cri-client/pkg/logs")
			},
		},
		{
			"only config and status hold the node credential",
			func(from string) bool {
				return within(from, "services", "pkg") && !within(from, "services/config", "services/status")
			},
			func(_, to string) bool {
				return within(to, "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "k8s.io/client-go/informers", "k8s.io/client-go/dynamic") && !within(to, "k8s.io/client-go/kubernetes/scheme")
			},
		},
		{
			"the shared packages know no service",
			func(from string) bool { return within(from, "pkg", "proto") },
			func(_, to string) bool { return within(to, module+"services", module+"cmd") },
		},
		{
			"what ships does not depend on what tests it",
			product,
			func(_, to string) bool { return within(to, module+"test") },
		},
		{
			"only the bus package speaks NATS, so that it can be away everywhere else",
			func(from string) bool { return product(from) && from != "pkg/bus" },
			func(_, to string) bool { return within(to, "github.com/nats-io") },
		},
	}
	applied := make([]int, len(rules))
	for _, p := range packages(t) {
		for i, rule := range rules {
			if !rule.applies(p.ImportPath) {
				continue
			}
			applied[i]++
			for _, to := range p.Imports {
				if rule.forbids(p.ImportPath, to) {
					t.Errorf("%s imports %s: %s", p.ImportPath, to, rule.reason)
				}
			}
		}
	}
	for i, n := range applied {
		if n == 0 {
			t.Errorf("no package is subject to the rule %q", rules[i].reason)
		}
	}
}

// TestPackageDocs: a stranger reads the package comment first.
func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		documented := len(p.GoFiles) == 0
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || parsed.Doc != nil
		}
		if !documented {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestHouseTable: the one table of the house agrees with the contracts and with
// itself.
func TestHouseTable(t *testing.T) {
	for _, f := range house.Feeds() {
		if owner, _, ok := strings.Cut(f.Name, "."); !ok || owner != string(f.Owner) {
			t.Errorf("feed %s belongs to %s: its name must begin with its owner", f.Name, f.Owner)
		}
		for _, reader := range f.Readers {
			if !house.IsService(reader) {
				t.Errorf("feed %s is read by %q, which is no service", f.Name, reader)
			}
			if reader == f.Owner {
				t.Errorf("feed %s is read by its owner", f.Name)
			}
		}
	}
	if nodev1.NodeService_ServiceDesc.ServiceName != "sextant.node.v1.NodeService" {
		t.Error("the node contract was renamed")
	}
	declared := map[string]bool{}
	contract := regexp.MustCompile(`(?m)^\s*rpc (\w+)\(|^service (\w+) \{|^package ([\w.]+);`)
	err := filepath.WalkDir(filepath.Join(root, "proto"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".proto") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg, service := "", ""
		for _, m := range contract.FindAllStringSubmatch(string(data), -1) {
			switch {
			case m[3] != "":
				pkg = m[3]
			case m[2] != "":
				service = m[2]
			default:
				declared["/"+pkg+"."+service+"/"+m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	methods := house.Methods()
	for method := range declared {
		if len(methods[method]) == 0 {
			t.Errorf("nobody may call %s: the house table does not list it", method)
		}
	}
	for method := range methods {
		if strings.HasPrefix(method, "/sextant.") && !declared[method] {
			t.Errorf("the house table lists %s, which no contract declares", method)
		}
	}
}

// TestArchitecturePage: the owner table that people read is the one that runs.
func TestArchitecturePage(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var order []string
	for _, s := range house.Services() {
		order = append(order, string(s))
		if !strings.Contains(page, "**"+string(s)+"**") {
			t.Errorf("docs/architecture.md does not present the service %s", s)
		}
	}
	if want := strings.Join(order, ", "); !strings.Contains(page, "The start order is `"+want+"`") {
		t.Errorf("docs/architecture.md does not give the start order %s", want)
	}
	for _, f := range house.Feeds() {
		if !strings.Contains(page, "`"+f.Name+"`") {
			t.Errorf("docs/architecture.md does not name the feed %s", f.Name)
		}
	}
	for _, name := range regexp.MustCompile("`([a-z]+\\.[a-z]+)`").FindAllStringSubmatch(page, -1) {
		owner, _, _ := strings.Cut(name[1], ".")
		if house.IsService(house.Service(owner)) {
			if _, ok := house.FeedNamed(name[1]); !ok {
				t.Errorf("docs/architecture.md names the feed %s, which does not exist", name[1])
			}
		}
	}
}

// TestArchitectureTable: each row of the owner table says which feeds a service
// serves, and whose it reads.
func TestArchitectureTable(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	var presented []house.Service
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || !strings.HasPrefix(cells[1], " **") {
			continue
		}
		s := house.Service(strings.Trim(cells[1], " *"))
		presented = append(presented, s)
		served := regexp.MustCompile(`[a-z]+\.[a-z]+`).FindAllString(cells[3], -1)
		if want := house.Owned(s); !slices.Equal(served, want) {
			t.Errorf("docs/architecture.md: %s serves %v, in the program %v", s, served, want)
		}
		var from, want []string
		for _, word := range regexp.MustCompile("[a-z]+").FindAllString(cells[4], -1) {
			if house.IsService(house.Service(word)) {
				from = append(from, word)
			}
		}
		for _, feed := range house.Reads(s) {
			owner, _, _ := strings.Cut(feed, ".")
			want = append(want, owner)
		}
		slices.Sort(from)
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(from, want) {
			t.Errorf("docs/architecture.md: %s reads of %v, in the program of %v", s, from, want)
		}
	}
	if want := append(house.Services(), "supervisor"); !slices.Equal(slices.Sorted(slices.Values(presented)), slices.Sorted(slices.Values(want))) {
		t.Errorf("docs/architecture.md: the owner table has %v, the node %v", presented, want)
	}
}

// TestOneMarshaller: messages become bytes in pkg/wire (and in the codec of pkg/rpc,
// which goes by it), for proto.Marshal refuses a message because of a text that is
// not UTF-8, and texts come from containers.
func TestOneMarshaller(t *testing.T) {
	const library = "google.golang.org/protobuf/proto"
	looked := 0
	for _, p := range packages(t) {
		if !product(p.ImportPath) || within(p.ImportPath, "proto", "pkg/wire") || !slices.Contains(p.Imports, library) {
			continue
		}
		looked++
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"Marshal", "MarshalOptions", "MarshalAppend"}, s.Sel.Name) {
					return true
				}
				if from, ok := s.X.(*ast.Ident); ok && from.Name == "proto" {
					t.Errorf("%s: proto.%s: use wire.Marshal", set.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
	if looked < 10 {
		t.Errorf("only %d packages looked at", looked)
	}
}
