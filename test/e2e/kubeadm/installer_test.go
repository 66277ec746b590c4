// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// installerImage is the image of the release's DaemonSet, in this test.
const installerImage = "sextant.local/sextant:test"

// TestInstaller: the DaemonSet of the release installs the package on a node that kubeadm
// joined with the kubelet, and makes kubelet.service Sextant, under pods that do not notice.
func TestInstaller(t *testing.T) {
	m, join := newMachineWithout(t)
	m.kubeadm(join...)
	m.node()
	for i := range 3 {
		m.start(fmt.Sprintf("app-%d", i))
	}
	before := m.look()
	if _, err := os.Stat("/usr/bin/sextant"); err == nil {
		t.Fatal("the package is there already")
	}
	if err := m.runtime.ImportImage(t.Context(), filepath.Join(harness.BootFiles, "image.tar"), installerImage); err != nil {
		t.Fatal(err)
	}
	m.cp.StartScheduler(t) // a DaemonSet has its pods scheduled
	m.cp.Kubectl(t, "apply", "-k", m.installer())
	m.cp.Kubectl(t, "label", "node", nodeName, "sextant-install=true")
	m.Cleanup(func() {
		_ = m.cp.TryKubectl(context.Background(), "delete", "--wait=false", "-n", metav1.NamespaceSystem, "daemonset", "sextant-installer")
	})
	harness.Eventually(m, limit, "the installer to be Ready", func(ctx context.Context) error {
		pods, err := m.cp.Admin.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=sextant-installer"})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("no pod")
		}
		p := &pods.Items[0]
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v\n%s", p.Status, m.cp.TryKubectl(ctx, "logs", "-n", p.Namespace, p.Name, "-c", "install"))
	})
	m.agent("journalctl")
	m.same(before)
	if out := m.run("dpkg-query", "--show", "--showformat=${Status}", "sextant"); out != "install ok installed" {
		m.Errorf("dpkg says of the package: %s", out)
	}
	said := m.cp.Kubectl(t, "logs", "-n", metav1.NamespaceSystem, "daemonset/sextant-installer", "-c", "install")
	if t.Logf("the installer says:\n%s", said); !strings.Contains(said, "kubelet.service is Sextant") {
		t.Errorf("the installer says:\n%s", said)
	}
	m.run("sextant", "migrate", "--back")
	m.same(before)
	m.purge()
	m.same(before)
	m.kubeadm("reset", "--force", "--cri-socket="+endpoint)
}

// installer is the folder of the release's manifests, as a user who wants --migrate has it.
func (m *machine) installer() string {
	m.Helper()
	dir := m.T.TempDir()
	for _, name := range []string{"daemonset.yaml", "kustomization.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../../deploy/installer", name))
		if err != nil {
			m.Fatal(err)
		}
		manifest := strings.ReplaceAll(string(text), "VERSION", "test")
		if head, patch, ok := strings.Cut(manifest, "# patches:"); ok {
			manifest = head + strings.ReplaceAll("# patches:"+patch, "# ", "")
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(manifest), 0o600); err != nil {
			m.Fatal(err)
		}
	}
	return dir
}
