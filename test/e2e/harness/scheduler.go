// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"testing"
)

// StartScheduler adds the scheduler to the control plane, for tests that do not
// bind their pods themselves. It ends with the test.
func (c *ControlPlane) StartScheduler(t testing.TB) {
	t.Helper()
	kubeconfig := c.file("scheduler.kubeconfig")
	p, err := c.lab.tool("conformance", "kube-scheduler")
	if err := errors.Join(err, c.ca.kubeconfig(kubeconfig, c.Server, "system:kube-scheduler")); err != nil {
		t.Fatal(err)
	}
	s, err := start("kube-scheduler", c.file("kube-scheduler.log"), p, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
