// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// problems are what config refuses of the manifest folder, by file name.
func (n *node) problems(ctx context.Context) (map[string][]*configv1.Problem, error) {
	m, err := pull(ctx, n, house.ConfigSources, feed.Whole[*configv1.Source])
	if err != nil {
		return nil, err
	}
	found := map[string][]*configv1.Problem{}
	for _, p := range m.Items()["file"].GetProblems() {
		found[filepath.Base(p.GetOrigin())] = append(found[filepath.Base(p.GetOrigin())], p)
	}
	return found, nil
}

// badManifests puts every kind of bad file into the manifest folder. Each must
// give one problem that names file and field, and the others must go on. A field that
// nothing knows is a warning, and its pod runs.
func badManifests(e *env) {
	text := func(name, container string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: " + e.ns + "}\nspec:\n  containers:\n  - {name: hello, image: \"" + images.Hello + "\"" + container + "}\n"
	}
	e.addManifest(e.manifest("first"), text("first", ""))
	first := e.awaitRunning("first-"+e.n.Name, usual)
	cases := map[string]struct{ content, field, message string }{
		"syntax": {"apiVersion: v1\nkind: Pod\nmetadata: {name: [\n", "", "yaml"},
		"type":   {text("type", ", tty: maybe"), "spec.containers.tty", "type bool"},
		"value":  {text("value", ", imagePullPolicy: Sometimes"), "spec.containers[0].imagePullPolicy", "Sometimes"},
		"second": {text("first", ", args: [again]"), "metadata.name", "first"},
		"large":  {text("large", "") + strings.Repeat("# a comment that goes on\n", 10<<20/25+1), "", "larger than"},
	}
	for name, c := range cases {
		e.addManifest(e.manifest(name), c.content)
	}
	folder, loop := filepath.Join(e.n.Manifests, e.manifest("folder")), filepath.Join(e.n.Manifests, e.manifest("loop"))
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Symlink(loop, loop)); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := errors.Join(os.Remove(folder), os.Remove(loop)); err != nil {
			e.Error(err)
		}
	})
	cases["folder"] = struct{ content, field, message string }{"", "", "folder"}
	cases["loop"] = struct{ content, field, message string }{"", "", "symbolic links"}
	for name, c := range cases {
		harness.Eventually(e, usual, "one clear problem with "+name, func(ctx context.Context) error {
			all, err := e.n.problems(ctx)
			if err != nil {
				return err
			}
			got := all[e.manifest(name)]
			if len(got) != 1 || got[0].GetOrigin() != filepath.Join(e.n.Manifests, e.manifest(name)) ||
				got[0].GetField() != c.field || !strings.Contains(got[0].GetMessage(), c.message) {
				return fmt.Errorf("problems %v, want one with field %q about %q", got, c.field, c.message)
			}
			return nil
		})
	}
	e.addManifest(e.manifest("unknown"), text("unknown", ", imagee: x"))
	e.awaitRunning("unknown-"+e.n.Name, usual)
	// The log says it too, once a file.
	log, err := os.ReadFile(filepath.Join(e.n.Logs, "config.log"))
	if err != nil {
		e.Fatal(err)
	}
	for _, name := range append(slices.Collect(maps.Keys(cases)), "unknown") {
		lines := 0
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, e.manifest(name)) && (strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)) {
				lines++
			}
		}
		if lines != 1 {
			e.Errorf("the log mentions %s on %d lines", name, lines)
		}
	}
	e.addManifest(e.manifest("last"), text("last", ""))
	e.awaitRunning("last-"+e.n.Name, usual)
	if want := fmt.Sprintf(`"origin":%q,"field":"spec.containers[0].imagee"`, filepath.Join(e.n.Manifests, e.manifest("unknown"))); !strings.Contains(string(log), want) {
		e.Errorf("no warning %s in the log of config", want)
	}
	now := e.awaitRunning("first-"+e.n.Name, usual)
	if now.UID != first.UID || now.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		e.Error("bad files changed a good pod")
	}
	for name, c := range cases {
		if c.content != "" {
			e.n.RemoveManifest(e, e.manifest(name))
			harness.Eventually(e, usual, "the problem with "+name+" to be gone", func(ctx context.Context) error {
				all, err := e.n.problems(ctx)
				if err == nil && len(all[e.manifest(name)]) > 0 {
					err = fmt.Errorf("problems %v", all[e.manifest(name)])
				}
				return err
			})
		}
	}
	for _, name := range []string{"first", "unknown", "last"} {
		e.n.RemoveManifest(e, e.manifest(name))
	}
	for _, name := range []string{"first", "unknown", "last"} {
		e.awaitGone(name+"-"+e.n.Name, usual)
	}
}

// TestConfigurationOfAnotherVersion: a field that this version does not know is a warning
// that names file, line and field, and the node starts, as a kubelet does.
func TestConfigurationOfAnotherVersion(t *testing.T) {
	n := harness.NewNode(t, harness.NodeOptions{Runtime: harness.StartRuntime(t, harness.V2)})
	file := filepath.Join(filepath.Dir(n.Run), "kubelet.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(b)+"frobnicate: {often: true}\n")
	ctx, cancel := context.WithTimeout(t.Context(), usual)
	defer cancel()
	out, err := n.TryUp(ctx)
	if err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	log, err := os.ReadFile(filepath.Join(n.Logs, "config.log"))
	if err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf("%s:%d", file, strings.Count(string(b), "\n")+1)
	want := fmt.Sprintf(`"source":%q,"name":"frobnicate","message":"unknown field, ignored"`, source)
	if !strings.Contains(string(log), want) {
		t.Errorf("no warning %s in the log of config:\n%s", want, log)
	}
}

// TestBadConfiguration starts nodes with configurations that must be refused by
// name, before anything is started.
func TestBadConfiguration(t *testing.T) {
	rt := harness.StartRuntime(t, harness.V2)
	for _, c := range []struct{ name, add, want string }{
		{"value", "maxPods: -3\n", "maxPods"},
		{"type", "syncFrequency: soon\n", "syncFrequency"},
		{"several", "imageGCHighThresholdPercent: 120\neventRecordQPS: -1\n", "imageGCHighThresholdPercent"},
		{"syntax", "clusterDNS: [\n", "yaml"},
		{"kind", "kind: KubeProxyConfiguration\n", "kind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, harness.NodeOptions{Runtime: rt})
			file := filepath.Join(filepath.Dir(n.Run), "kubelet.yaml")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			if c.name == "kind" {
				text = strings.Replace(text, "kind: KubeletConfiguration\n", "", 1)
			}
			writeFile(t, file, text+c.add)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, err := n.TryUp(ctx)
			if err == nil || !strings.Contains(out, c.want) || !strings.Contains(out, file) {
				t.Errorf("up: %v, want a refusal that names %q and %s:\n%s", err, c.want, file, out)
			}
			if left := harness.Traces(filepath.Dir(n.Run), "no-such-name"); len(left) > 0 {
				t.Errorf("started all the same: %v", left)
			}
		})
	}
}
