// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/test/fuzzing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func file(name string) Source {
	return Source{Kind: pod.SourceFile, Path: "/etc/kubernetes/manifests/" + name, NodeName: "node-1"}
}

// The UIDs are what the kubelet v1.36.3 gives these manifests on node-1, read from
// /etc/kubernetes/manifests. If one changes, every static pod of every node restarts on
// the next upgrade.
var kubeletUIDs = map[string]types.UID{
	"web.yaml":      "d0f9e3f8917d7f8c79377ed0a92bedf1",
	"etcd.yaml":     "51c8cae5d1f3f3f75143b0d4b545e6d5",
	"rich.yaml":     "3fe0bb4eeedf14e20f7bb2af51ca971c",
	"podlevel.json": "9931cd0a5464a5503e41b87a6e1df840",
}

func TestIdentityIsTheKubelets(t *testing.T) {
	for name, want := range kubeletUIDs {
		data, err := os.ReadFile(filepath.Join("testdata/kubelet", name))
		if err != nil {
			t.Fatal(err)
		}
		pods, _, err := Decode(data, file(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := pods[0].UID; got != want {
			t.Errorf("%s: UID %s, want %s", name, got, want)
		}
	}
}

func TestIdentityDependsOnTheSource(t *testing.T) {
	data, err := os.ReadFile("testdata/kubelet/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[types.UID]Source{}
	for _, src := range []Source{
		file("web.yaml"), file("web2.yaml"),
		{Kind: pod.SourceFile, Path: "/etc/kubernetes/manifests/web.yaml", NodeName: "node-2"},
		{Kind: pod.SourceHTTP, Path: "http://192.0.2.1/web.yaml", NodeName: "node-1"},
	} {
		pods, _, err := Decode(data, src)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[pods[0].UID]; ok {
			t.Errorf("%v and %v give the same UID", src, other)
		}
		seen[pods[0].UID] = src
	}
}

func TestDecodeMakesAStaticPod(t *testing.T) {
	pods, _, err := Decode([]byte(`
# a comment first
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: nginx}]
  tolerations: [{operator: Exists, effect: NoExecute}]
status: {phase: Running, podIP: 192.0.2.7}
`), Source{Kind: pod.SourceFile, Path: "/m/web.yaml", NodeName: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	p := pods[0]
	if p.Name != "web-node-1" || p.Namespace != "default" || p.Spec.NodeName != "node-1" {
		t.Errorf("name %q, namespace %q, node %q", p.Name, p.Namespace, p.Spec.NodeName)
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/config.hash": string(p.UID), "kubernetes.io/config.source": "file"}, p.Annotations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(v1.PodStatus{Phase: v1.PodPending}, p.Status); diff != "" {
		t.Error(diff)
	}
	if len(p.Spec.Tolerations) != 1 {
		t.Errorf("tolerations %v", p.Spec.Tolerations)
	}
	if p.Spec.Containers[0].ImagePullPolicy != v1.PullAlways || p.Spec.RestartPolicy != v1.RestartPolicyAlways || *p.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("defaults are missing: %+v", p.Spec)
	}
	fromURL, _, err := Decode([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","uid":"mine"},"spec":{"containers":[{"name":"c","image":"nginx"}]}}`),
		Source{Kind: pod.SourceHTTP, Path: "http://x", NodeName: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if p := fromURL[0]; p.UID != "mine" || len(p.Spec.Tolerations) != 0 || p.Annotations[pod.ConfigSourceAnnotation] != "http" {
		t.Errorf("from a URL: UID %s, tolerations %v, source %s", p.UID, p.Spec.Tolerations, p.Annotations[pod.ConfigSourceAnnotation])
	}
}

func TestDefaults(t *testing.T) {
	data, err := os.ReadFile("testdata/kubelet/rich.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods, _, err := Decode(data, file("rich.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(pods[0])
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/rich.want.yaml"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	// Setting defaults twice changes nothing.
	again := pods[0].DeepCopy()
	SetDefaults(again)
	if diff := cmp.Diff(pods[0], again); diff != "" {
		t.Error(diff)
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"nginx": v1.PullAlways, "nginx:latest": v1.PullAlways, "nginx:1": v1.PullIfNotPresent, "localhost:5000/nginx": v1.PullAlways,
		"nginx@sha256:0123456789012345678901234567890123456789012345678901234567890123":   v1.PullIfNotPresent,
		"nginx:1@sha256:0123456789012345678901234567890123456789012345678901234567890123": v1.PullIfNotPresent,
		"Not An Image": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

// minimal returns a manifest with lines put below spec and below its container.
func minimal(spec, container string) string {
	indent := func(s, by string) string {
		if s == "" {
			return ""
		}
		return by + strings.ReplaceAll(s, "\n", "\n"+by) + "\n"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n" + indent(spec, "  ") + "  containers:\n  - name: c\n    image: i:1\n" + indent(container, "    ")
}

func TestRefusals(t *testing.T) {
	const prefix = "manifest /etc/kubernetes/manifests/p.yaml: "
	tests := []struct {
		name, manifest string
		want           string // part of the message
	}{
		{"empty", "", "empty: want a Pod"},
		{"only comments", "# nothing\n---\n# here\n", "empty: want a Pod"},
		{"syntax", "a: [", "not valid YAML: "},
		{"tab", "apiVersion: v1\n\tkind: Pod", "not valid YAML: yaml: line 2: found a tab character"},
		{"line in the second document", "# one\n---\n# two\n---\nkind: Pod\nb: [\n", "not valid YAML: yaml: line 6: "},
		{"binary", "\x00\x01\x02", "not valid YAML: "},
		{"broken JSON", `{"apiVersion": "v1",`, "unexpected end of JSON input"},
		{"no kind", "apiVersion: v1\n", "kind: Required value: want Pod"},
		{"no version", "kind: Pod\n", "apiVersion: Required value: want v1"},
		{"other kind", "apiVersion: apps/v1\nkind: Deployment\n", `apiVersion "apps/v1", kind "Deployment": want v1, Pod`},
		{"list in a file", "apiVersion: v1\nkind: PodList\nitems: []\n", "kind PodList: a file holds one Pod"},
		{"wrong type", minimal("", "ports: [{containerPort: http}]"), "cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"},
		{"wrong quantity", minimal("", "resources: {limits: {cpu: lots}}"), "quantities must match the regular expression"},
		{"no name", "apiVersion: v1\nkind: Pod\nspec: {}\n", "metadata.name: Required value"},
		{"no containers", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "spec.containers: Required value"},
		{"bad name", strings.Replace(minimal("", ""), "{name: p}", "{name: P_1}", 1), `metadata.name: Invalid value: "P_1-node-1"`},
		{"bad namespace", strings.Replace(minimal("", ""), "{name: p}", "{name: p, namespace: a.b}", 1), `metadata.namespace: Invalid value: "a.b"`},
		{"bad uid", strings.Replace(minimal("", ""), "{name: p}", "{name: p, uid: ../../etc}", 1), "metadata.uid: Invalid value"},
		{"no image", strings.Replace(minimal("", ""), "image: i:1", "image: ''", 1), "spec.containers[0].image: Required value"},
		{"container twice", minimal("initContainers: [{name: c, image: i}]", ""), `spec.containers[0].name: Duplicate value: "c"`},
		{"restart policy", minimal("restartPolicy: Sometimes", ""), `spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`},
		{"dns policy", minimal("dnsPolicy: None", ""), "spec.dnsConfig.nameservers: Required value"},
		{"port range", minimal("", "ports: [{containerPort: 70000}]"), "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535"},
		{"port protocol", minimal("", "ports: [{containerPort: 1, protocol: tcp}]"), `spec.containers[0].ports[0].protocol: Unsupported value: "tcp"`},
		{"host port twice", minimal("", "ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]"), "spec.containers[0].ports[1].hostPort: Duplicate value"},
		{"host port of an init container twice", minimal("initContainers: [{name: i, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]}]", ""),
			"spec.initContainers[0].ports[1].hostPort: Duplicate value"},
		{"host network port", minimal("hostNetwork: true", "ports: [{containerPort: 1, hostPort: 2}]"), "must match containerPort when hostNetwork is true"},
		{"no such volume", minimal("", "volumeMounts: [{name: v, mountPath: /v}]"), `spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		{"mount twice", minimal("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v}]"), `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v": must be unique`},
		{"sub path", minimal("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /v, subPath: a/../..}]"), "spec.containers[0].volumeMounts[0].subPath: Invalid value"},
		{"two volume types", minimal("volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]", ""), "spec.volumes[0]: Forbidden: may not specify more than 1 volume type"},
		{"volume twice", minimal("volumes: [{name: v}, {name: v}]", ""), `spec.volumes[1].name: Duplicate value: "v"`},
		{"host path", minimal("volumes: [{name: v, hostPath: {path: /a/../b}}]", ""), "spec.volumes[0].hostPath.path: Invalid value"},
		{"probe without handler", minimal("", "livenessProbe: {periodSeconds: 1}"), "spec.containers[0].livenessProbe: Required value: must specify one of: exec, grpc, httpGet, tcpSocket"},
		{"probe with two", minimal("", "livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}"), "spec.containers[0].livenessProbe: Forbidden: may not specify more than one of: exec, tcpSocket"},
		{"liveness threshold", minimal("", "livenessProbe: {exec: {command: [a]}, successThreshold: 2}"), "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		{"init probe", minimal("initContainers: [{name: i, image: i, readinessProbe: {exec: {command: [a]}}}]", ""), "spec.initContainers[0].readinessProbe: Forbidden"},
		{"sleep too long", minimal("terminationGracePeriodSeconds: 5", "lifecycle: {preStop: {sleep: {seconds: 6}}}"), "spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: 6"},
		{"request above limit", minimal("", "resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), `spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		{"negative request", minimal("", "resources: {requests: {cpu: -1}}"), `spec.containers[0].resources.requests[cpu]: Invalid value: "-1"`},
		{"unknown resource", minimal("", "resources: {requests: {gpu: 1}}"), "must be a standard resource"},
		{"env without name", minimal("", "env: [{value: x}]"), "spec.containers[0].env[0].name: Required value"},
		{"env source", minimal("", "env: [{name: X, valueFrom: {}}]"), "spec.containers[0].env[0].valueFrom: Required value"},
		{"field ref", minimal("", "env: [{name: X, valueFrom: {fieldRef: {fieldPath: spec.nodename}}}]"), "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value"},
		{"rules without policy", minimal("", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"), "spec.containers[0].restartPolicy: Required value"},
		{"ephemeral container", minimal("ephemeralContainers: [{name: e, image: i}]", ""), "spec.ephemeralContainers: Forbidden"},
		{"several at once", minimal("restartPolicy: X\ndnsPolicy: Other", ""), `[spec.dnsPolicy: Unsupported value: "Other": supported values: "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None", spec.restartPolicy: Unsupported value: "X"`},
		{"too large", "a: " + strings.Repeat("x", MaxSize), "larger than 10485760 bytes"},

		{"service account", minimal("serviceAccountName: x", ""), "spec.serviceAccountName: Forbidden: static pods may not reference serviceaccounts"},
		{"old service account", minimal("serviceAccount: x", ""), "static pods may not reference serviceaccounts"},
		{"pull secret", minimal("imagePullSecrets: [{name: x}]", ""), "spec.imagePullSecrets: Forbidden: static pods may not reference secrets"},
		{"claims", minimal("resourceClaims: [{name: x, resourceClaimName: z}]", ""), "static pods may not reference resourceclaims"},
		{"env secret", minimal("", "env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "spec.containers[0].env[0].valueFrom.secretKeyRef: Forbidden: static pods may not reference secrets"},
		{"env from config map", minimal("", "envFrom: [{configMapRef: {name: m}}]"), "spec.containers[0].envFrom[0].configMapRef: Forbidden: static pods may not reference configmaps"},
		{"config map volume", minimal("volumes: [{name: v, configMap: {name: m}}]", ""), "spec.volumes[0].configMap: Forbidden: static pods may not reference configmaps"},
		{"secret volume", minimal("volumes: [{name: v, secret: {secretName: m}}]", ""), "spec.volumes[0].secret: Forbidden"},
		{"claim volume", minimal("volumes: [{name: v, persistentVolumeClaim: {claimName: m}}]", ""), "static pods may not reference persistentvolumeclaims"},
		{"csi volume", minimal("volumes: [{name: v, csi: {driver: d}}]", ""), "static pods may not reference csidrivers"},
		{"token volume", minimal("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", ""), "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Decode([]byte(tt.manifest), file("p.yaml"))
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error()
			if !strings.HasPrefix(got, prefix) || !strings.Contains(got, tt.want) {
				t.Errorf("message %q\nlacks   %q", got, tt.want)
			}
			if strings.Contains(got, "\n") {
				t.Errorf("message has several lines: %q", got)
			}
		})
	}
	if _, _, err := Decode([]byte(minimal("", "")), file("p.yaml")); err != nil {
		t.Errorf("the manifest all others are made from is refused: %v", err)
	}
}

// TestAccepted: what a kubelet v1.36.3 runs, and what is said of it.
func TestAccepted(t *testing.T) {
	list := `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p"},"specs":{},"spec":{"containers":[{"name":"c","image":"i:1"}]}}]}`
	tests := map[string]struct{ text, ignored string }{
		"as it should be":        {minimal("", ""), ""},
		"mount path with colons": {minimal("volumes: [{name: v, hostPath: {path: /sys}}]", "volumeMounts: [{name: v, mountPath: '/sys/bus/pci/devices/0000:00:1f.0'}]"), ""},
		"port of a sidecar and of a container": {minimal("hostNetwork: true\ninitContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 9090}]}]",
			"ports: [{containerPort: 9090}]"), ""},
		"port of two init containers": {minimal("initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}, "+
			"{name: b, image: i, ports: [{containerPort: 1, hostPort: 80}]}]", ""), ""},
		"sysctl by two names":   {minimal("securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}, {name: kernel/msgmax, value: '2'}]}", ""), ""},
		"unknown fields":        {minimal("futureField: {a: b}", "imagePullPolice: Always"), `unknown field "spec.containers[0].imagePullPolice"; unknown field "spec.futureField"`},
		"unknown field of JSON": {list, `unknown field "items[0].specs"`},
		"case matters":          {minimal("RestartPolicy: Never", ""), `unknown field "spec.RestartPolicy"`},
		"kind in another case":  {strings.Replace(minimal("", ""), "kind:", "Kind:", 1), `unknown field "Kind"`},
		"key twice":             {minimal("", "image: i:2"), `line 8: key "image" already set in map`},
		"keys twice": {minimal("hostNetwork: true\nhostNetwork: false", "image: i:2"),
			`line 6: key "hostNetwork" already set in map; line 10: key "image" already set in map`},
		"key twice in JSON": {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q","name":"p"},"spec":{"containers":[{"name":"c","image":"i:1","image":"i:2"}]}}`,
			`duplicate field "metadata.name"; duplicate field "spec.containers[0].image"`},
		"two documents":                 {minimal("", "") + "---\n" + minimal("", "image: i:2"), "more than one YAML document: only the first counts"},
		"a second one on one line":      {minimal("", "") + "--- {kind: Pod}\n", "more than one YAML document: only the first counts"},
		"a second one that is not YAML": {"# &a\n" + minimal("", "") + "...\n---\na: [\n", "more than one YAML document: only the first counts"},
		"an empty one behind":           {minimal("", "") + "---\n# nothing\n...\n", ""},
		"a directive":                   {"%YAML 1.1\n# one\n---\n" + minimal("", ""), ""},
		"dashes that end nothing":       {minimal("", "command:\n- \"a\n\n---b\"") + "...\n", ""},
		"line ends of Windows":          {strings.ReplaceAll("---\n"+minimal("", "")+"---\n", "\n", "\r\n"), ""},
		"all at once":                   {minimal("x: 1", "image: i:2") + "---\na: b\n", `more than one YAML document: only the first counts; line 9: key "image" already set in map; unknown field "spec.x"`},
	}
	for name, tt := range tests {
		src, at := file("p.yaml"), "manifest /etc/kubernetes/manifests/p.yaml: "
		if tt.text == list {
			src, at = Source{Kind: pod.SourceHTTP, Path: "http://x", NodeName: "node-1"}, "manifest URL http://x: "
		}
		pods, ignored, err := Decode([]byte(tt.text), src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p := pods[0]; p.Name != "p-node-1" || p.Kind != "Pod" || p.Spec.RestartPolicy != v1.RestartPolicyAlways {
			t.Errorf("%s: pod %+v", name, p)
		}
		// The last of two values counts, and nothing of a second document.
		if want := strings.Contains(tt.ignored, `"image"`) || strings.Contains(tt.ignored, ".image\""); (pods[0].Spec.Containers[0].Image == "i:2") != want {
			t.Errorf("%s: image %s", name, pods[0].Spec.Containers[0].Image)
		}
		if got := fmt.Sprint(ignored); tt.ignored == "" && ignored != nil || tt.ignored != "" && got != at+tt.ignored {
			t.Errorf("%s: ignored %s", name, got)
		}
	}
}

// TestAliases: a manifest of 200 KiB takes no gigabytes, and one that uses aliases as
// people do is read.
func TestAliases(t *testing.T) {
	bomb := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  annotations:\n    a: &a " + strings.Repeat("A", 100<<10) + "\n"
	for i := range 7000 {
		bomb += fmt.Sprintf("    a%d: *a\n", i)
	}
	bomb += "spec:\n  containers:\n  - {name: c, image: i}\n"
	fuzzing.Allocates(t, 64<<20, func() {
		_, _, err := Decode([]byte(bomb), Source{Kind: pod.SourceFile, Path: "/m.yaml", NodeName: "n"})
		if err == nil || !strings.Contains(err.Error(), "/m.yaml: not valid YAML: aliases make more than") {
			t.Errorf("%.200v", err)
		}
	})
	modest := `apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
  - {name: a, image: i, env: &env [{name: A, value: "1 & 2"}]}
  - {name: b, image: i, env: *env}
`
	pods, _, err := Decode([]byte(modest), Source{Kind: pod.SourceFile, Path: "/m.yaml", NodeName: "n"})
	if err != nil || pods[0].Spec.Containers[1].Env[0].Value != "1 & 2" {
		t.Errorf("%v, %v", pods, err)
	}
}

func TestPodList(t *testing.T) {
	src := Source{Kind: pod.SourceHTTP, Path: "http://192.0.2.1/pods", NodeName: "n"}
	item := func(name, image string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`
	}
	list := func(items ...string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"PodList","items":[` + strings.Join(items, ",") + `]}`)
	}
	pods, _, err := Decode(list(item("a", "i"), item("b", "i")), src)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 || pods[0].Name != "a-n" || pods[1].Name != "b-n" || pods[1].Kind != "Pod" || pods[0].UID == pods[1].UID {
		t.Errorf("got %v", pods)
	}
	if pods, _, err := Decode(list(), src); err != nil || len(pods) != 0 {
		t.Errorf("empty list: %v, %v", pods, err)
	}
	if _, _, err := Decode(list(item("a", "i"), item("b", "")), src); err == nil || !strings.Contains(err.Error(), "manifest URL http://192.0.2.1/pods: items[1] (b-n): invalid pod: spec.containers[0].image") {
		t.Errorf("bad item: %v", err)
	}
	if _, _, err := Decode(list(item("a", "i"), item("a", "j")), src); err == nil || !strings.Contains(err.Error(), "items[1].metadata.name: duplicate pod default/a-n") {
		t.Errorf("same name twice: %v", err)
	}
}

// No input makes Decode panic, and what it accepts is a complete static pod.
func FuzzDecode(f *testing.F) {
	for name := range kubeletUIDs {
		data, err := os.ReadFile(filepath.Join("testdata/kubelet", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(minimal("", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, _, err := Decode(data, file("p.yaml"))
		if err != nil {
			if len(pods) != 0 {
				t.Error("pods beside an error")
			}
			return
		}
		for _, p := range pods {
			if p.Name == "" || p.Namespace == "" || p.UID == "" || !pod.IsStatic(p) || len(p.Spec.Containers) == 0 || len(Validate(p)) > 0 {
				t.Errorf("incomplete pod %+v", p)
			}
		}
	})
}
