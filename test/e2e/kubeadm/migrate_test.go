// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// TestMigrate: a node that kubeadm joined with the kubelet gets Sextant and the kubelet
// again, under ten pods that do not notice; a change that cannot work undoes itself;
// systemctl and journalctl act on the whole agent by the name kubelet.
func TestMigrate(t *testing.T) {
	m, join := newMachine(t)
	m.kubeadm(join...)
	m.node()
	for i := range 10 {
		m.start(fmt.Sprintf("app-%d", i))
	}
	before := m.look()
	flips, silence := m.watchFlips(), m.watchLease()
	if out, err := m.timed("sextant", "check"); err != nil && !strings.Contains(out, "ready for Sextant: 0 block") {
		m.Errorf("sextant check: %v", err)
	}

	// No service renews the lease of the node.
	m.run("systemctl", "mask", "--runtime", "sextant-status.service")
	if out, err := m.try("sextant", "migrate", "--timeout=15s"); err == nil || !strings.Contains(out, "the node has its former agent again: the kubelet") {
		m.Errorf("sextant migrate without a part of Sextant: %v", err)
	}
	m.run("systemctl", "unmask", "--runtime", "sextant-status.service")
	m.agent("kubelet")
	m.same(before)

	if out, err := m.timed("sextant", "migrate"); err != nil || !strings.Contains(out, "kubelet.service is Sextant; 10 of 10 containers run on") {
		m.Fatalf("sextant migrate: %v", err)
	}
	m.agent("journalctl")
	m.same(before)
	m.unit()
	m.same(before)

	if out, err := m.timed("sextant", "migrate", "--back"); err != nil || !strings.Contains(out, "kubelet.service is the kubelet; 10 of 10 containers run on") {
		m.Fatalf("sextant migrate --back: %v", err)
	}
	m.agent("kubelet")
	m.same(before)
	m.purge()
	m.agent("kubelet")
	m.same(before)
	if seen := flips(); len(seen) > 0 {
		t.Errorf("flips:\n%s", strings.Join(seen, "\n"))
	}
	t.Logf("the node's lease was renewed after %.1f s at the latest", silence().Seconds())
	m.kubeadm("reset", "--force", "--cri-socket="+endpoint)
}

// timed is try, and logs how long it took.
func (m *machine) timed(program string, args ...string) (string, error) {
	m.Helper()
	began := time.Now()
	out, err := m.try(program, args...)
	m.Logf("%s %s took %.1f s", program, strings.Join(args, " "), time.Since(began).Seconds())
	return out, err
}

// watchLease measures the longest time between two renewals of the node's lease, until the
// function it returns is called.
func (m *machine) watchLease() func() time.Duration {
	m.Helper()
	ctx, stop := context.WithCancel(m.Context())
	leases, err := m.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName})
	if err != nil {
		m.Fatal(err)
	}
	longest := make(chan time.Duration, 1)
	go func() {
		var last, most = time.Time{}, time.Duration(0)
		for e := range leases.ResultChan() {
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok || lease.Spec.RenewTime == nil {
				continue
			}
			if now := lease.Spec.RenewTime.Time; now.After(last) {
				if !last.IsZero() {
					most = max(most, now.Sub(last))
				}
				last = now
			}
		}
		longest <- most
	}()
	return func() time.Duration {
		stop()
		return <-longest
	}
}

// start runs a pod on the node.
func (m *machine) start(name string) {
	m.Helper()
	if _, err := m.cp.Admin.CoreV1().Pods("default").Create(m.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "app", Image: images.Hello}}},
	}, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
}

// look waits until every pod is Ready, and returns what must not change: their containers,
// and since when they and the node are Ready.
func (m *machine) look() map[string]string {
	m.Helper()
	var seen map[string]string
	harness.Eventually(m, limit, "all pods to be Ready", func(ctx context.Context) error {
		seen = map[string]string{}
		pods, err := m.cp.Admin.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && len(p.Status.ContainerStatuses) == 1 {
					s := p.Status.ContainerStatuses[0]
					seen[p.Name] = fmt.Sprintf("%s restarted %d times, Ready since %s", s.ContainerID, s.RestartCount, c.LastTransitionTime)
				}
			}
			if seen[p.Name] == "" {
				return fmt.Errorf("%s: %+v", p.Name, p.Status)
			}
		}
		node, err := m.cp.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				seen["node"] = fmt.Sprintf("%s since %s", c.Status, c.LastTransitionTime)
			}
		}
		return nil
	})
	return seen
}

func (m *machine) same(before map[string]string) {
	m.Helper()
	now := m.look()
	for name, was := range before {
		if now[name] == was {
			continue
		}
		m.Errorf("%s was %s\nit is %s\n%s", name, was, now[name], m.statusOf(name))
	}
}

// statusOf is the status of a pod, and who wrote it when.
func (m *machine) statusOf(name string) string {
	p, err := m.cp.Admin.CoreV1().Pods("default").Get(m.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%+v\n", p.Status)
	for _, f := range p.ManagedFields {
		text += fmt.Sprintf("%s %s %s at %s\n", f.Manager, f.Operation, f.Subresource, f.Time)
	}
	return text
}

// agent looks at the process of kubelet.service.
func (m *machine) agent(program string) {
	m.Helper()
	pid := strings.TrimSpace(m.run("systemctl", "show", "--property=MainPID", "--value", "kubelet"))
	exe, err := os.Readlink("/proc/" + pid + "/exe")
	if err != nil || !strings.HasSuffix(exe, "/"+program) {
		m.Errorf("kubelet.service runs %s, not %s: %v", exe, program, err)
	}
}

// unit does with kubelet.service what an operator does, while it is Sextant.
func (m *machine) unit() {
	m.Helper()
	if out := m.run("systemctl", "is-enabled", "kubelet"); strings.TrimSpace(out) != "enabled" {
		m.Errorf("kubelet.service is %s", out)
	}
	if log := m.log("kubelet"); !strings.Contains(log, `"service":"podworker"`) || !strings.Contains(log, `"service":"supervisor"`) {
		m.Errorf("journalctl -u kubelet:\n%s", harness.Tail(log, 20))
	}
	pids := m.pids()
	m.run("systemctl", "kill", "--signal=KILL", "kubelet")
	harness.Eventually(m, limit, "kubelet.service to be active again", func(context.Context) error {
		if out, err := m.try("systemctl", "is-active", "kubelet"); err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
	if now := m.pids(); now != pids {
		m.Errorf("the kill of kubelet.service ended services: they were\n%s\nthey are\n%s", pids, now)
	}

	m.run("systemctl", "stop", "kubelet")
	if left := m.run("systemctl", "list-units", "--no-legend", "--plain", "--type=service", "--state=active,activating,reloading", "sextant*"); strings.TrimSpace(left) != "" {
		m.Errorf("after systemctl stop kubelet there run\n%s", left)
	}
	began := time.Now()
	m.run("systemctl", "start", "kubelet")
	m.renewed(began)
	began = time.Now()
	m.run("systemctl", "restart", "kubelet")
	m.renewed(began)
}

// pids are those of the services.
func (m *machine) pids() string {
	m.Helper()
	return m.run("systemctl", "show", "--property=Id,MainPID", "sextant-*.service")
}

// renewed waits for a lease that the agent has renewed since.
func (m *machine) renewed(since time.Time) {
	m.Helper()
	harness.Eventually(m, limit, "the node's lease to be renewed", func(ctx context.Context) error {
		lease, err := m.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(since) {
			err = fmt.Errorf("renewed at %v", lease.Spec.RenewTime)
		}
		return err
	})
}

// purge removes the package and looks for what is left of it. The certificates of the node
// stay: they are not an agent's.
func (m *machine) purge() {
	m.Helper()
	m.run("dpkg", "--purge", "sextant")
	if left := m.run("sh", "-c", "find /etc /run /usr/bin /usr/lib /var/lib -xdev -iname '*sextant*' -not -path '/var/lib/systemd/*' -not -path '/var/lib/kubelet/pki/*'"); strings.TrimSpace(left) != "" {
		m.Errorf("left by the package:\n%s", left)
	}
	if left := m.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "sextant*"); strings.TrimSpace(left) != "" {
		m.Errorf("units left by the package:\n%s", left)
	}
}
