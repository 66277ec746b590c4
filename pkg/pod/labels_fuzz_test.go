// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzParseContainer: labels and annotations of a runtime's container, whatever they are,
// give information that is usable, and that is read the same when it is written again.
func FuzzParseContainer(f *testing.F) {
	preStop := `{"exec":{"command":["sh"]}}`
	f.Add("web", "ns", "u", "c", "1f", "3", "30", "-1", "/dev/termination-log", "File", preStop, `[{"name":"http","containerPort":80,"protocol":"TCP"}]`)
	f.Add("", "ns", "u", "", "", "", "", "", "", "", "", "")
	f.Add("web", "ns", "u", "c", "-1", "-1", "1e3", "99999999999999999999", "", "", "null", "null")
	f.Add("web", "ns", "u", "c", "fffffffffffffffff", "2147483648", " 1", "0x1", "\xff", "?", `{"sleep":{"seconds":1e99}}`, `[{},{},{}]`)
	f.Add("web", "ns", "u", "c", "0", "0", "0", "0", "", "", `{"httpGet":{"port":"p"}}`, `[{"containerPort":"x"}]`)
	f.Fuzz(func(t *testing.T, name, namespace, uid, container, hash, restarts, deletion, termination, path, policy, preStop, ports string) {
		labels := map[string]string{pod.PodNameLabel: name, pod.PodNamespaceLabel: namespace, pod.PodUIDLabel: uid, pod.ContainerNameLabel: container}
		annotations := map[string]string{
			pod.HashAnnotation: hash, pod.RestartCountAnnotation: restarts, pod.DeletionGracePeriodAnnotation: deletion,
			pod.TerminationGracePeriodAnnotation: termination, pod.TerminationMessagePathAnnotation: path,
			pod.TerminationMessagePolicyAnnotation: policy, pod.PreStopHandlerAnnotation: preStop, pod.PortsAnnotation: ports,
		}
		var info pod.ContainerInfo
		var err error
		fuzzing.Allocates(t, 512<<10+200*uint64(len(preStop)+len(ports))+10*uint64(len(hash)+len(restarts)+len(deletion)+len(termination)), func() {
			fuzzing.Spends(t, time.Second, func() { info, err = pod.ParseContainer(labels, annotations) })
		})
		sandbox, ours := pod.ParseSandbox(labels)
		if (ours != nil) != (name == "" || namespace == "" || uid == "") || errors.Is(err, pod.ErrNotOurs) != (ours != nil || container == "") {
			t.Fatalf("%q: %v, %v", labels, ours, err)
		}
		if errors.Is(err, pod.ErrNotOurs) {
			return
		}
		if info.Pod != sandbox || info.RestartCount < 0 {
			t.Errorf("%+v", info)
		}
		if err != nil && len(err.Error()) > 4096 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(uid), DeletionGracePeriodSeconds: info.DeletionGrace},
			Spec:       v1.PodSpec{TerminationGracePeriodSeconds: info.TerminationGrace},
		}
		c := &v1.Container{Name: container, Ports: info.Ports, TerminationMessagePath: path, TerminationMessagePolicy: v1.TerminationMessagePolicy(policy)}
		if info.PreStop != nil {
			c.Lifecycle = &v1.Lifecycle{PreStop: info.PreStop}
		}
		written, err := pod.ContainerAnnotations(p, c, info.RestartCount, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := pod.ParseContainer(pod.ContainerLabels(p, c), written)
		if err != nil {
			t.Fatal(err)
		}
		again.Hash = info.Hash // of the name and the image, which is not at hand
		if diff := cmp.Diff(asJSON(t, info), asJSON(t, again)); diff != "" {
			t.Error(diff)
		}
	})
}

// asJSON has no difference between an empty list and none.
func asJSON(t *testing.T, info pod.ContainerInfo) string {
	t.Helper()
	if len(info.Ports) == 0 {
		info.Ports = nil
	}
	raw, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
