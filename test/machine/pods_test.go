// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// template of the pods. A namespace's own ConfigMap and account come with the
// volumes of a pod of the API server.
func template(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(60)),
			Containers: []corev1.Container{{
				Name: "hello", Image: "sextant.local/hello:v1", ImagePullPolicy: corev1.PullNever,
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: httpGet("/ready")},
					PeriodSeconds: 2, TimeoutSeconds: 60, FailureThreshold: 10,
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
			}}},
		},
	}
}

// manifest adds a static pod.
func (b *bench) manifest(name string) {
	b.Helper()
	text, err := json.Marshal(template(name))
	b.check(err)
	b.write("/etc/kubernetes/manifests/"+name+".yaml", string(text))
}

// app has a pod of the API server on the machine, one that no controller takes
// off it while it is away.
func (b *bench) app(name string) {
	b.Helper()
	p := template(name)
	p.Namespace = b.ns
	p.Spec.NodeName = nodeName
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "authority", MountPath: "/authority"})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "authority", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}},
	}})
	if _, err := b.cp.Admin.CoreV1().Pods(b.ns).Create(b.Context(), p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		b.Fatal(err)
	}
}

// pod is what the API server has.
func (b *bench) pod(name string) *corev1.Pod {
	b.Helper()
	p, err := b.cp.Admin.CoreV1().Pods(b.ns).Get(b.Context(), name, metav1.GetOptions{})
	b.check(err)
	return p
}

func (b *bench) delete(name string) {
	b.Helper()
	b.check(b.cp.Admin.CoreV1().Pods(b.ns).Delete(b.Context(), name, metav1.DeleteOptions{}))
	b.gone(name)
}

// gone waits until the API server has no such pod.
func (b *bench) gone(name string) {
	b.Helper()
	b.eventually(name+" gone", func(ctx context.Context) error {
		_, err := b.cp.Admin.CoreV1().Pods(b.ns).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the API server has it (%v)", err)
	})
}

// reported waits until the API server calls a pod ready and the node as well.
func (b *bench) reported(name string) {
	b.Helper()
	b.eventually(name+" ready at the API server", func(ctx context.Context) error {
		p, err := b.cp.Admin.CoreV1().Pods(b.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node, err := b.cp.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready := nodeReady(node); ready.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node: %s: %s", ready.Reason, ready.Message)
		}
		if ready := podReady(p); ready.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s %s: %s", p.Status.Phase, ready.Reason, ready.Message)
		}
		return nil
	})
}

// row is a pod as the node sees it.
type row struct {
	Pod      string `json:"name"`
	Ready    string
	Phase    string
	IP       string
	WaitsFor string
	Restarts int
}

// ready waits until pods of these names are ready and answer.
func (b *bench) ready(names ...string) {
	b.Helper()
	b.eventually(fmt.Sprintf("%v ready", names), func(ctx context.Context) error {
		rows, err := b.rows(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			r := rows[name]
			if r.Ready != "1/1" || r.Phase != string(corev1.PodRunning) {
				return fmt.Errorf("%s: %+v", name, r)
			}
			out, err := b.m.Do(ctx, fmt.Sprintf(`timeout 60 bash -c 'exec 3<>/dev/tcp/%s/8080; printf "GET /ready HTTP/1.0\r\n\r\n" >&3; head -n 1 <&3'`, r.IP))
			if err != nil || !strings.Contains(out, " 200 ") {
				return fmt.Errorf("%s at %s: %q, %w", name, r.IP, out, err)
			}
		}
		return nil
	})
}

// rows are the pods by name as the node sees them.
func (b *bench) rows(ctx context.Context) (map[string]row, error) {
	out, err := b.m.Do(ctx, "sextant pods -o json 2>&1")
	if err != nil {
		return nil, err
	}
	var list []row
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("%q: %w", out, err)
	}
	rows := map[string]row{}
	for _, r := range list {
		rows[strings.TrimSuffix(r.Pod, "-"+nodeName)] = r
	}
	return rows, nil
}

// container is the id of the container of a pod that runs, one a line; also of a pod that
// Sextant does not list any more.
func (b *bench) container(name string) string {
	b.Helper()
	rows, err := b.rows(b.Context())
	b.check(err)
	return b.do(`running=$(ctr -n k8s.io tasks ls | awk '$3 == "RUNNING" {print $1}')
ctr -n k8s.io containers ls -q 'labels."io.kubernetes.pod.name"==` + cmp.Or(rows[name].Pod, name) + `,labels."io.kubernetes.container.name"==hello' | grep -Fx "$running" || true`)
}

// seen is what may not change under pods.
type seen struct {
	containers map[string]string
	restarts   map[string]int
	flips      map[string]metav1.Time
	node       metav1.Time
}

// snapshot is how pods and node stand, as the machine and the API server say.
func (b *bench) snapshot(names ...string) seen {
	b.Helper()
	s := seen{containers: map[string]string{}, restarts: map[string]int{}, flips: map[string]metav1.Time{}}
	rows, err := b.rows(b.Context())
	b.check(err)
	for _, name := range names {
		s.containers[name], s.restarts[name] = b.container(name), rows[name].Restarts
		if rows[name].Pod == name { // no mirror of a static pod
			b.reported(name)
			s.flips[name] = podReady(b.pod(name)).LastTransitionTime
		}
	}
	node, err := b.cp.Admin.CoreV1().Nodes().Get(b.Context(), nodeName, metav1.GetOptions{})
	b.check(err)
	s.node = nodeReady(node).LastTransitionTime
	return s
}

// same fails the test when pods or the node noticed something: the node controller
// has the patience to leave their readiness to the node, whose Lease goes on.
func (b *bench) same(before, after seen) {
	b.Helper()
	for name, id := range before.containers {
		if now := after.containers[name]; now != id || len(strings.Fields(id)) != 1 {
			b.Errorf("%s lost its container: %q, then %q", name, id, now)
		}
		if was, is := before.restarts[name], after.restarts[name]; was != is {
			b.Errorf("%s was restarted: %d, then %d", name, was, is)
		}
	}
	if !before.node.Equal(&after.node) {
		b.Errorf("the node was not ready for a while: since %s, then since %s", before.node, after.node)
	}
	for name, at := range before.flips {
		if now := after.flips[name]; !at.Equal(&now) {
			b.Errorf("%s was not ready for a while: since %s, then since %s", name, at, now)
		}
	}
	asked := b.lease().Spec.RenewTime
	b.eventually("the Lease renewed", func(context.Context) error {
		if now := b.lease().Spec.RenewTime; !asked.Before(now) {
			return fmt.Errorf("it was at %s", now)
		}
		return nil
	})
}

func (b *bench) lease() *coordinationv1.Lease {
	b.Helper()
	lease, err := b.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(b.Context(), nodeName, metav1.GetOptions{})
	b.check(err)
	return lease
}

// pid of a unit's process.
func (b *bench) pid(unit string) string {
	b.Helper()
	return b.do("systemctl show -p MainPID --value " + unit)
}

// killed kills the process of a unit and waits for the next one.
func (b *bench) killed(s string) {
	b.Helper()
	unit := "sextant-" + s + ".service"
	pid := b.pid(unit)
	b.do("kill -9 " + pid)
	b.again(unit, pid)
}

// again waits until another process of a unit is ready.
func (b *bench) again(unit, pid string) {
	b.Helper()
	b.until(unit+" again", "systemctl show -p MainPID -p ActiveState "+unit, func(out string) bool {
		lines := strings.Fields(out)
		return slices.Contains(lines, "ActiveState=active") && !slices.Contains(lines, "MainPID="+pid) && !slices.Contains(lines, "MainPID=0")
	})
}

// runs fails the test when a service runs another version.
func (b *bench) runs(service, version string) {
	b.Helper()
	var rows []struct{ Service, Running string }
	b.check(json.Unmarshal([]byte(b.do("sextant versions -o json")), &rows))
	for _, r := range rows {
		if r.Service == service && r.Running == version {
			return
		}
	}
	b.Errorf("%s should run %s: %+v", service, version, rows)
}

func httpGet(path string) *corev1.HTTPGetAction {
	return &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}
}

func podReady(p *corev1.Pod) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}

func nodeReady(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
