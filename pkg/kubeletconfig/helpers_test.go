// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// head is what every configuration file begins with; its fields start in line 3.
const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// setup is one situation to load a configuration in.
type setup struct {
	args []string
	// config is the --config file without its head; absent when nil.
	config *string
	// dropIns are files below --config-dir without their head; absent when nil.
	dropIns map[string]string
}

// load loads a situation on a machine named Host-1.
func (s setup) load(t testing.TB) (*Config, []Warning, error) {
	t.Helper()
	files, args := fstest.MapFS{}, append([]string{}, s.args...)
	if s.config != nil {
		files["etc/kubelet/config.yaml"] = &fstest.MapFile{Data: []byte(head + *s.config)}
		args = append(args, "--config=/etc/kubelet/config.yaml")
	}
	if s.dropIns != nil {
		files["etc/kubelet/conf.d"] = &fstest.MapFile{Mode: dirMode}
		args = append(args, "--config-dir=/etc/kubelet/conf.d")
		for name, data := range s.dropIns {
			files["etc/kubelet/conf.d/"+name] = &fstest.MapFile{Data: []byte(head + data)}
		}
	}
	flags, err := ParseFlags(args)
	if err != nil {
		return nil, nil, err
	}
	return Load(flags, Inputs{Files: files, WorkDir: "/cwd", Hostname: "Host-1"})
}

// mustLoad is load where an error ends the test.
func (s setup) mustLoad(t testing.TB) (*Config, []Warning) {
	t.Helper()
	c, w, err := s.load(t)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c, w
}

// node are the arguments of a node that has an API server.
func withAPI(args ...string) []string { return append([]string{"--kubeconfig=/kubeconfig"}, args...) }

// asJSON returns v as generic JSON.
func asJSON(t testing.TB, v any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// problemLines returns the problems of an error as text, one per element.
func problemLines(err error) []string {
	var out []string
	for _, p := range Problems(err) {
		out = append(out, p.Error())
	}
	return out
}

// yamlAt writes "a.b.c" and a value as nested YAML on one line.
func yamlAt(path, value string) string {
	parts := strings.Split(path, ".")
	out := value
	for i := len(parts) - 1; i > 0; i-- {
		out = fmt.Sprintf("{%s: %s}", parts[i], out)
	}
	return fmt.Sprintf("%s: %s\n", parts[0], out)
}
