// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

//go:embed metrics-server.yaml
var metricsServerObjects string

// StartMetricsServer adds the metrics-server to the control plane, with the rights
// of its own manifests, and returns once the API server answers for its API. It
// scrapes every node that has registered, every ten seconds, which is the fastest
// it can; it ends with the test.
func (c *ControlPlane) StartMetricsServer(t testing.TB) {
	t.Helper()
	kubeconfig := c.file("metrics-server.kubeconfig")
	program, err := c.lab.tool("metrics-server", "metrics-server")
	address, addressErr := c.lab.network.address(corev1.IPv4Protocol)
	if err := errors.Join(err, addressErr, c.ca.kubeconfig(kubeconfig, c.Server, "metrics-server")); err != nil {
		t.Fatal(err)
	}
	port, err := c.lab.port(address.String())
	if err != nil {
		t.Fatal(err)
	}
	objects := strings.NewReplacer("$ADDRESS", address.String(), "$PORT", strconv.Itoa(port)).Replace(metricsServerObjects)
	// Its API comes last: one that nobody serves holds up whoever asks for all.
	rights, api := objects[:strings.LastIndex(objects, "---\n")], objects[strings.LastIndex(objects, "---\n"):]
	c.apply(t, "metrics-server-rights.yaml", rights)
	p, err := start("metrics-server", c.file("metrics-server.log"), program,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address="+address.String(), fmt.Sprintf("--secure-port=%d", port), "--cert-dir="+c.file("metrics-server"),
		"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=9s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Not the test's context: that has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := c.kubectl(ctx, "delete", "--ignore-not-found", "apiservice/v1beta1.metrics.k8s.io")
		if err := errors.Join(err, p.kill(ctx)); err != nil {
			t.Errorf("end the metrics-server: %v %s", err, out)
		}
	})
	err = p.ready(t.Context(), 4*time.Minute, func(ctx context.Context) error {
		resp, err := Unverified(nil).Do(request(ctx, fmt.Sprintf("https://%s:%d/readyz", address, port)))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, "metrics-server-api.yaml", api)
	Eventually(t, 3*time.Minute, "the API of the metrics-server", func(ctx context.Context) error {
		out, err := c.kubectl(ctx, "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// apply makes the objects of a manifest.
func (c *ControlPlane) apply(t testing.TB, name, manifest string) {
	t.Helper()
	if err := os.WriteFile(c.file(name), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "apply", "-f", c.file(name))
}
