// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/env"
)

var update = flag.Bool("update", false, "write the golden files anew")

// node is the file node.yaml of a case: what is not the pod's.
type node struct {
	Attempt           uint32
	RestartCount      int
	Container         string
	Vars              []env.Var
	Volumes           map[string]Volume
	SubPaths          map[int]string
	RecursiveReadOnly bool
	EtcHosts          string
	TerminationLog    string
	Allocated         Allocated
	TargetID          string
	ImageUser         pod.ImageUser
	Security          pod.SecurityOptions
	Resources         pod.ResourceOptions
	MemoryQoS         *MemoryQoS
	StopSignals       bool
	SELinux           bool
}

// TestGolden makes the sandbox and one container of each case in testdata and
// compares them with what the case says. Sections: pod.yaml, node.yaml, then
// sandbox.yaml and container.yaml, or error.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			given := map[string][]byte{}
			for _, f := range archive.Files {
				given[f.Name] = f.Data
			}
			var p v1.Pod
			var n node
			if err := yaml.UnmarshalStrict(given["pod.yaml"], &p); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(given["node.yaml"], &n); err != nil {
				t.Fatal(err)
			}
			got := build(t, &p, n)
			if *update {
				write(t, file, archive, got)
				return
			}
			for name, want := range given {
				if name != "pod.yaml" && name != "node.yaml" && !bytes.Equal(got[name], want) {
					t.Errorf("%s:\n%s\nwant:\n%s", name, got[name], want)
				}
			}
			for name := range got {
				if _, ok := given[name]; !ok {
					t.Errorf("%s is not in the case: run with -update and look", name)
				}
			}
		})
	}
}

func write(t *testing.T, file string, archive *txtar.Archive, got map[string][]byte) {
	archive.Files = archive.Files[:2]
	for _, name := range []string{"sandbox.yaml", "container.yaml", "error"} {
		if data, ok := got[name]; ok {
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: data})
		}
	}
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, p *v1.Pod, n node) map[string][]byte {
	t.Helper()
	fail := func(err error) map[string][]byte { return map[string][]byte{"error": []byte(err.Error() + "\n")} }
	sandbox, err := Sandbox(SandboxInput{
		Pod: p, Attempt: n.Attempt, CgroupParent: "/kubepods/pod" + string(p.UID),
		LogDir: pod.PodLogDir("/var/log/pods", p.Namespace, p.Name, p.UID), ClusterDomain: "cluster.local",
		DNS: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}}, Security: n.Security, Resources: n.Resources,
	})
	if err != nil {
		return fail(err)
	}
	c, _ := pod.FindContainer(p, n.Container)
	if c == nil {
		t.Fatalf("no container %q", n.Container)
	}
	if _, err := SubPaths(c, n.Volumes, env.Values(n.Vars)); err != nil {
		return fail(err)
	}
	mounts, err := Mounts(MountInput{
		Container: c, Vars: env.Values(n.Vars), Volumes: n.Volumes, SubPaths: n.SubPaths, RecursiveReadOnly: n.RecursiveReadOnly,
		EtcHosts: n.EtcHosts, TerminationLog: n.TerminationLog, SELinux: n.SELinux, UserNamespace: n.Security.UserNamespace,
	})
	if err != nil {
		return fail(err)
	}
	devices, err := Devices(c, n.Volumes)
	if err != nil {
		return fail(err)
	}
	container, err := Container(ContainerInput{
		Pod: p, Container: c, RestartCount: n.RestartCount, ImageRef: "sha256:feed", ImageUser: n.ImageUser, Vars: n.Vars,
		Mounts: mounts, Devices: devices, Allocated: n.Allocated, TargetID: n.TargetID, StopSignals: n.StopSignals,
		Security: n.Security, Resources: n.Resources, MemoryQoS: n.MemoryQoS,
	})
	if err != nil {
		return fail(err)
	}
	return map[string][]byte{"sandbox.yaml": toYAML(t, sandbox), "container.yaml": toYAML(t, container)}
}

func toYAML(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	// Environment values are bytes; show them as text.
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	if c, ok := m.(*runtimeapi.ContainerConfig); ok && len(c.Envs) > 0 {
		var vars []string
		for _, kv := range c.Envs {
			vars = append(vars, kv.Key+"="+string(kv.Value))
		}
		tree["envs"] = vars
	}
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSubPaths(t *testing.T) {
	volumes := map[string]Volume{"data": {HostPath: "/v/data"}, "img": {Image: &runtimeapi.ImageSpec{Image: "x"}}}
	vars := map[string]string{"POD": "web-0", "NONE": "", "LONG": strings.Repeat("x", 100)}
	for _, tc := range []struct {
		name  string
		mount v1.VolumeMount
		want  string
		err   string
	}{
		{"none", v1.VolumeMount{Name: "data"}, "", ""},
		{"plain", v1.VolumeMount{Name: "data", SubPath: "a/b"}, "a/b", ""},
		{"expression", v1.VolumeMount{Name: "data", SubPathExpr: "logs/$(POD)"}, "logs/web-0", ""},
		{"escaped", v1.VolumeMount{Name: "data", SubPathExpr: "$$(POD)"}, "$(POD)", ""},
		{"unknown variable", v1.VolumeMount{Name: "data", SubPathExpr: "$(NOPE)"}, "", "missing value for NOPE"},
		{"unknown and empty variables", v1.VolumeMount{Name: "data", SubPathExpr: "$(NOPE)$(POD)$(NONE)$(NOPE)"}, "", "missing value for NONE, NOPE"},
		{"too long for a path", v1.VolumeMount{Name: "data", SubPathExpr: strings.Repeat("$(LONG)", 41)}, "", `subPathExpr of volumeMount "data": longer than 4096 bytes`},
		{"upwards", v1.VolumeMount{Name: "data", SubPath: "a/../../b"}, "", "unable to provision SubPath `a/../../b`: must not contain '..'"},
		{"absolute", v1.VolumeMount{Name: "data", SubPath: "/etc"}, "", "error SubPath `/etc` must not be an absolute path"},
		{"dots in a name", v1.VolumeMount{Name: "data", SubPath: "a..b"}, "a..b", ""},
		{"image volume", v1.VolumeMount{Name: "img", SubPath: "a"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := SubPaths(&v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "data"}, tc.mount}}, volumes, vars)
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
			case err != nil:
				t.Error(err)
			case tc.want == "" && len(got) != 0:
				t.Errorf("got %v, want none", got)
			case tc.want != "" && (len(got) != 1 || got[0].Path != tc.want || got[0].Index != 1):
				t.Errorf("got %v, want %s at 1", got, tc.want)
			}
		})
	}
}
