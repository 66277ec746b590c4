// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	reference "k8s.io/kubernetes/pkg/kubelet/config"
	kubelettypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/sextant-node/sextant/services/config"
)

// TestManifests: of a folder of manifests that look like mistakes Sextant makes the pods that
// the reference's own source of pods makes, and no others: one that runs does not end when
// Sextant takes over. The UID is a hash of all that is in a pod.
func TestManifests(t *testing.T) {
	manifest := func(name, spec, container string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" + spec + "  containers:\n  - name: c\n    image: i:1\n" + container
	}
	const port = "    ports: [{containerPort: 9090}]\n"
	const sidecar = "  hostNetwork: true\n  initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 9090}]}]\n"
	files := map[string]string{
		"plain":         manifest("plain", "", ""),
		"unknown":       manifest("unknown", "  futureField: {a: b}\n", "    imagePullPolice: Always\n"),
		"case":          strings.Replace(manifest("case", "  RestartPolicy: Never\n", ""), "kind:", "Kind:", 1),
		"twice":         manifest("twice", "  hostNetwork: true\n  hostNetwork: false\n", "    image: i:2\n    ports: [{containerPort: 1}]\n    ports: []\n"),
		"twice-json":    `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","name":"twice-json"},"spec":{"containers":[{"name":"c","image":"i:1","image":"i:2"}]}}`,
		"second":        manifest("second", "", "") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
		"second-broken": manifest("second-broken", "", "") + "...\n--- {kind: Pod}\n---\na: [\n",
		"directive":     "%YAML 1.1\n---\n" + manifest("directive", "", "") + "---\n",
		"windows":       strings.ReplaceAll("---\n"+manifest("windows", "", "    command: [sh, -c, \"a\n      b\"]\n")+"---\n", "\n", "\r\n"),
		"colon": manifest("colon", "  volumes: [{name: v, hostPath: {path: /sys}}]\n",
			"    volumeMounts: [{name: v, mountPath: '/sys/bus/pci/devices/0000:00:1f.0'}]\n"),
		"sidecar":     manifest("sidecar", sidecar, port),
		"sysctls":     manifest("sysctls", "  securityContext: {sysctls: [{name: a.b, value: c}, {name: a/b, value: c}]}\n", ""),
		"syntax":      manifest("syntax", "", "    x: [\n"),
		"type":        manifest("type", "", "    tty: maybe\n"),
		"value":       manifest("value", "", "    imagePullPolicy: Sometimes\n"),
		"ports":       manifest("ports", "  hostNetwork: true\n", port+"  - name: d\n    image: i\n"+port),
		"ports-init":  manifest("ports-init", "  initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 2}, {containerPort: 3, hostPort: 2}]}]\n", ""),
		"second-only": "kind: Service\n---\n" + manifest("second-only", "", ""),
	}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]*v1.Pod{}
	source := reference.NewPodConfig(&record.FakeRecorder{}, nil)
	reference.NewSourceFile(klog.Background(), dir, "node-1", time.Hour, source.Channel(t.Context(), kubelettypes.FileSource))
	for _, p := range (<-source.Updates()).Pods {
		want[p.Name] = p
	}
	got := map[string]*v1.Pod{}
	all, err := config.ReadManifests(dir, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Pod != nil {
			got[m.Pod.Name] = m.Pod
		}
	}
	if len(want) < 11 {
		t.Errorf("the reference made %d pods", len(want))
	}
	for name := range files {
		theirs, ours := want[name+"-node-1"], got[name+"-node-1"]
		if (theirs == nil) != (ours == nil) {
			t.Errorf("%s: the reference has a pod: %v, Sextant: %v", name, theirs != nil, ours != nil)
			continue
		}
		if theirs != nil && theirs.UID != ours.UID {
			t.Errorf("%s: UID %s, of the reference %s", name, ours.UID, theirs.UID)
		}
	}
}
