// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
	"github.com/sextant-node/sextant/test/images"
)

// The programs of Kubernetes, by name: a device plugin, and a driver that stands on the
// library that DRA drivers are made with (k8s.io/dynamic-resource-allocation/kubeletplugin).
const (
	samplePlugin = "sample-device-plugin"
	sampleDriver = "test-driver"
)

// buildPlugins builds them into a folder.
func buildPlugins(dir string) error {
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/",
		"k8s.io/kubernetes/test/images/"+samplePlugin, "k8s.io/kubernetes/test/e2e/dra/"+sampleDriver)
	build.Dir = "../../env/conformance"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugins: %w\n%s", err, out)
	}
	return nil
}

// TestPlugins: a device plugin and a DRA driver that are nobody's here serve pods that a
// scheduler places, and that keep what they have while the node's services, the plugin and
// the driver are killed.
func TestPlugins(t *testing.T) {
	cp := harness.StartControlPlane(t)
	cp.StartScheduler(t)
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Root: "/var/lib/kubelet"})
	c := newCrowd(t, n, rand.New(rand.NewPCG(1, 1)))
	c.Load = load.Watch(t, cp, n)
	c.Blind = withoutHealth
	const device, driver = "example.com/resource", "test-driver.cdi.k8s.io"
	plugin := func() (kill func()) { return c.program(samplePlugin) }
	dra := func() (kill func()) {
		// The driver makes the folder above its own.
		c.must(os.MkdirAll(filepath.Join(n.Root, "plugins", driver), 0o750))
		return c.program(sampleDriver, "kubelet-plugin", "--kubeconfig="+cp.KubeConfig, "--node-name="+n.Name, "--drivername="+driver,
			"--plugin-registration-path="+filepath.Join(n.Root, "plugins_registry"), "--datadir="+filepath.Join(n.Root, "plugins"),
			"--cdi-dir="+n.Runtime.CDIDir())
	}
	killPlugin, killDriver := plugin(), dra()
	defer func() { killPlugin(); killDriver() }()
	c.classOf(driver)

	c.scheduled("first", device)
	devices := c.mounted("first")
	if !strings.HasPrefix(devices, "Dev-") || !c.claimed("first") {
		t.Fatalf("the first has the device %q, and its claim: %t", devices, c.claimed("first"))
	}
	c.Keep([]string{"first"})
	for _, service := range []string{"resource", "podworker", "config"} {
		n.Kill(t, service)
	}
	killPlugin()
	killDriver()
	c.must(c.serving())
	killPlugin, killDriver = plugin(), dra()
	c.scheduled("second", device)
	if other := c.mounted("second"); !strings.HasPrefix(other, "Dev-") || other == devices || !c.claimed("second") {
		t.Errorf("the second has the device %q, the first %q; the second has its claim: %t", other, devices, c.claimed("second"))
	}
	for _, f := range c.Look() {
		t.Errorf("%s: %s", f.Kind, f.What)
	}
	if now := c.mounted("first"); now != devices {
		t.Errorf("the first had %s and has %s", devices, now)
	}
	for _, f := range c.End() {
		t.Errorf("the end: %s: %s", f.Kind, f.What)
	}
	c.must(harness.Within(t.Context(), load.Patience, func(context.Context) error {
		left, err := os.ReadFile(filepath.Join(n.Root, "dra_manager_state"))
		if err == nil && strings.Contains(string(left), "ClaimUID") {
			err = fmt.Errorf("prepared is %s", left)
		}
		return err
	}))
}

// program runs one of the programs; kill ends it as kill -9 does.
func (c *crowd) program(name string, args ...string) (kill func()) {
	c.T.Helper()
	cmd := exec.Command(filepath.Join(harness.BootFiles, name), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.must(cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	return func() {
		select {
		case <-ended: // by itself
			c.T.Errorf("%s has ended: %s", name, out.String())
		default:
		}
		_ = cmd.Process.Kill()
		<-ended
		if c.T.Failed() {
			c.T.Logf("%s: %s", name, out.String())
		}
	}
}

// classOf makes a class of the driver's devices, and a template of claims for one.
func (c *crowd) classOf(driver string) {
	c.T.Helper()
	_, err := c.CP.Admin.ResourceV1().DeviceClasses().Create(c.T.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: c.NS},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", driver),
		}}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.CP.Admin.ResourceV1().ResourceClaimTemplates(c.NS).Create(c.T.Context(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: c.NS}}},
		}}},
	}, metav1.CreateOptions{})
	c.must(err)
}

// scheduled makes a pod with a device and a claim, which the scheduler places.
func (c *crowd) scheduled(name, device string) {
	c.T.Helper()
	one := corev1.ResourceList{corev1.ResourceName(device): resource.MustParse("1")}
	c.must(c.Create(c.T.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "one", ResourceClaimTemplateName: new("one")}},
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello, Resources: corev1.ResourceRequirements{
			Limits: one, Requests: one, Claims: []corev1.ResourceClaim{{Name: "one"}},
		}}},
	}}))
	c.must(c.Await(c.T.Context(), name, load.IsReady))
}

// mounted is the device of a pod, which the sample plugin shows as a file below /tmp.
func (c *crowd) mounted(pod string) (device string) {
	c.T.Helper()
	for _, name := range []string{"Dev-1", "Dev-2"} {
		if code, _ := c.get(pod, "/file?path=/tmp/"+name); code == http.StatusOK {
			device += name
		}
	}
	return device
}

// claimed reports whether a container has the variable that the driver gives it by CDI.
func (c *crowd) claimed(pod string) bool {
	c.T.Helper()
	_, body := c.get(pod, "/env")
	return strings.Contains(body, `"claim_`)
}

func (c *crowd) get(pod, path string) (code int, body string) {
	c.T.Helper()
	c.must(harness.Within(c.T.Context(), load.Patience, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Told(pod).Status.PodIP+":8080"+path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		var b strings.Builder
		_, err = io.Copy(&b, resp.Body)
		code, body = resp.StatusCode, b.String()
		return errors.Join(err, resp.Body.Close())
	}))
	return code, body
}
