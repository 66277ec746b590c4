// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/test/fakecri"
)

func TestPodComesUpAndLeavesNothing(t *testing.T) {
	n := start(t, false)
	p := web()
	spec := n.up(p)
	n.wantEvents(
		`N Pulling containers{web: Pulling image "fake/sleep"`,
		n.lastPulled(),
	)
	id, err := n.StartContainer(n.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	n.wantEvents("N Created containers{web: Container created", "N Started containers{web: Container started")

	config := request[*runtimeapi.RunPodSandboxRequest](n, "RunPodSandbox").GetConfig()
	if config.GetHostname() != "web" || config.GetLinux().GetCgroupParent() != "/kubepods/poduid-web" || config.GetDnsConfig().GetServers()[0] != "10.96.0.10" {
		t.Errorf("sandbox: %v", config)
	}
	logs := logDirOf(n, p)
	if info, err := os.Stat(filepath.Join(logs, "web")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o755 {
		t.Errorf("log directory: %v, %v", info.Mode(), err)
	}
	link := pod.LegacyLogLink(n.cfg.LegacyLogsDir, "web", "default", "web", id)
	if target, err := os.Readlink(link); err != nil || target != filepath.Join(logs, "web", "0.log") {
		t.Errorf("legacy link: %q, %v", target, err)
	}
	if got := mustRead(t, n.layout.EtcHosts(p.UID)); !strings.Contains(got, "10.1.0.7\tweb\n") {
		t.Errorf("hosts file: %s", got)
	}
	var message *runtimeapi.Mount
	for _, m := range request[*runtimeapi.CreateContainerRequest](n, "CreateContainer").GetConfig().GetMounts() {
		if m.GetContainerPath() == "/dev/termination-log" {
			message = m
		}
	}
	if info, err := os.Stat(message.GetHostPath()); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("termination log: %v, %v", info, err)
	}

	if err := n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, RunPreStop: true, Grace: pod.Seconds(30)}); err != nil {
		t.Fatal(err)
	}
	n.wantEvents("N Killing containers{web: Stopping container web")
	// Twice each: what is gone is not an error.
	for range 2 {
		err := errors.Join(
			n.RemoveContainer(n.ctx(), p, id), n.StopSandbox(n.ctx(), p, spec.SandboxID),
			n.RemoveSandbox(n.ctx(), p, spec.SandboxID), n.CleanPodDirs(n.ctx(), p),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	if left := n.rt.Containers(); len(left) != 0 || len(n.rt.Sandboxes()) != 0 {
		t.Errorf("left in the runtime: %v %v", left, n.rt.Sandboxes())
	}
	for _, gone := range []string{n.layout.Pod(p.UID), logs, link} {
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}

// lastPulled is the event of a pull whose durations depend on the machine.
func (n *node) lastPulled() string {
	for _, e := range n.events.events {
		if strings.HasPrefix(e, `N Pulled containers{web: Successfully pulled image "fake/sleep" in `) &&
			strings.Contains(e, " including waiting). Image size: ") && strings.HasSuffix(e, " bytes.") {
			return e
		}
	}
	return "N Pulled … Successfully pulled"
}

func TestCleanKeepsWhatIsMounted(t *testing.T) {
	n := start(t, false)
	p := web()
	n.run(p)
	precious := filepath.Join(n.layout.Volume(p.UID, "kubernetes.io/empty-dir", "data"), "file")
	if err := errors.Join(os.MkdirAll(filepath.Dir(precious), 0o755), os.WriteFile(precious, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := n.CleanPodDirs(n.ctx(), p); err == nil {
		t.Error("a pod directory with a volume in it was said to be clean")
	}
	mustRead(t, precious)
	for _, uid := range []string{"", ".", "..", "../x", "a/b"} {
		bad := web()
		bad.UID = types.UID(uid)
		if err := n.CleanPodDirs(n.ctx(), bad); err == nil {
			t.Errorf("UID %q was accepted", uid)
		}
	}
}

func TestSandboxErrors(t *testing.T) {
	n := start(t, false)
	n.rt.Fail(fakecri.Match{Method: "RunPodSandbox"}, 1, status.Error(codes.Unknown, "no network"))
	_, err := n.RunSandbox(n.ctx(), SandboxSpec{Pod: web()})
	wantReason(t, err, reason.CreatePodSandboxError, `Failed to create sandbox for pod "web_default(uid-web)": rpc error: code = Unknown desc = no network`)
	n.wantEvents("W FailedCreatePodSandBox Pod: Failed to create pod sandbox: rpc error: code = Unknown desc = no network")
	if status.Code(err) != codes.Unknown {
		t.Errorf("the runtime's code is lost: %v", err)
	}

	no := false
	_, err = n.RunSandbox(n.ctx(), SandboxSpec{Pod: web(func(p *v1.Pod) { p.Spec.HostUsers = &no }), RuntimeHandler: "vm"})
	wantReason(t, err, reason.ConfigPodSandboxError, `Failed to generate sandbox config for pod "web_default(uid-web)": RuntimeClass handler "vm" does not support user namespaces`)
}

func TestUserNamespace(t *testing.T) {
	n := start(t, false)
	n.facts.node.Handlers = map[string]HandlerFeatures{"": {UserNamespaces: true}}
	no := false
	p := web(func(p *v1.Pod) { p.Spec.HostUsers = &no })
	n.run(p)
	sandbox := request[*runtimeapi.RunPodSandboxRequest](n, "RunPodSandbox").GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	container := request[*runtimeapi.CreateContainerRequest](n, "CreateContainer").GetConfig()
	inside := container.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if len(sandbox.GetUids()) != 1 || sandbox.String() != inside.String() {
		t.Errorf("sandbox has %v, container %v", sandbox, inside)
	}
	if m := container.GetMounts()[0]; len(m.GetUidMappings()) != 1 {
		t.Errorf("mount without mapping: %v", m)
	}
	// A record that cannot be read is made again from what the sandbox has.
	record := n.layout.UserNamespace(p.UID)
	was, err := os.ReadFile(record)
	if err == nil {
		err = os.WriteFile(record, []byte("{"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	users, err := n.users.Get(n.ctx(), p.UID, 65536)
	if err != nil || users.String() != sandbox.String() {
		t.Errorf("with a damaged record the pod has %v, %v", users, err)
	}
	if now, err := os.ReadFile(record); err != nil || string(now) != string(was) {
		t.Errorf("the record is %s, %v; it was %s", now, err, was)
	}
}

// TestResolvLimits: the node is told that its resolv.conf is more than a pod's may have.
func TestResolvLimits(t *testing.T) {
	n := start(t, false)
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 10.0.0.1\nsearch "+strings.Repeat("x", 254)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.conf.Kubelet.ResolverConfig = &file
	p := web()
	p.Spec.DNSPolicy = v1.DNSDefault
	if _, err := n.RunSandbox(n.ctx(), SandboxSpec{Pod: p}); err != nil {
		t.Fatal(err)
	}
	if got := n.events.take(); len(got) != 2 || !strings.HasPrefix(got[0], "W CheckLimitsForResolvConf Node: Resolv.conf file \""+file) {
		t.Errorf("events %v", got)
	}
}

func TestMissingClusterDNS(t *testing.T) {
	n := start(t, false)
	n.conf.Kubelet.ClusterDNS = nil
	if _, err := n.RunSandbox(n.ctx(), SandboxSpec{Pod: web()}); err != nil {
		t.Fatal(err)
	}
	got := n.events.take()
	if len(got) != 2 || !strings.HasPrefix(got[0], "W MissingClusterDNS Pod: ") || !strings.HasPrefix(got[1], "W MissingClusterDNS Node: ") {
		t.Errorf("events %v", got)
	}
}

func TestStartContainerErrors(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pod     *v1.Pod
		fail    string
		reason  Reason
		message string
		events  []string
	}{
		{
			"no config map", web(func(p *v1.Pod) {
				p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}}
			}), "", reason.CreateContainerConfigError, `configmaps "app" not found`,
			[]string{`W Failed containers{web: Error: configmaps "app" not found`},
		},
		{
			"no volume", web(func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d"}} }), "",
			reason.CreateContainerConfigError, `cannot find volume "data" to mount into container "web"`,
			[]string{`W Failed containers{web: Error: cannot find volume "data" to mount into container "web"`},
		},
		{
			"no user", web(func(p *v1.Pod) {
				c, yes, root := &p.Spec.Containers[0], true, int64(0)
				c.SecurityContext = &v1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &root}
			}), "", reason.CreateContainerConfigError, "container's runAsUser breaks non-root policy (pod: \"web_default(uid-web)\", container: web)",
			[]string{"W Failed containers{web: Error: container's runAsUser breaks non-root policy (pod: \"web_default(uid-web)\", container: web)"},
		},
		{
			"create fails", web(), "CreateContainer", reason.CreateContainerError, "no", []string{"W Failed containers{web: Error: no"},
		},
		{
			"start fails", web(), "StartContainer", reason.RunContainerError, "no",
			[]string{"N Created containers{web: Container created", "W Failed containers{web: Error: no"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false)
			spec := n.up(tc.pod)
			n.events.take()
			if tc.fail != "" {
				n.rt.Fail(fakecri.Match{Method: tc.fail}, 1, status.Error(codes.Internal, "no"))
			}
			id, err := n.StartContainer(n.ctx(), spec)
			wantReason(t, err, tc.reason, tc.message)
			if !errors.Is(err, tc.reason) {
				t.Errorf("errors.Is does not know the reason of %v", err)
			}
			n.wantEvents(tc.events...)
			made := tc.fail == "StartContainer"
			if (id != "") != made {
				t.Errorf("id %q", id)
			}
			// It is tried again for as long as the pod is there.
			if logs, err := os.ReadDir(n.layout.Container(tc.pod.UID, "web")); err != nil || (len(logs) > 0) != made {
				t.Errorf("termination logs: %v, %v", logs, err)
			}
		})
	}
}

func TestEnvironmentAndSubPaths(t *testing.T) {
	n := start(t, false)
	n.facts.objects["ConfigMap/default/app"] = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"COLOR": "blue"}}
	p := web(func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}}
		c.Env = []v1.EnvVar{{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}}
		c.Args = []string{"$(COLOR)", "$(IP)"}
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPathExpr: "by/$(COLOR)"}}
	})
	spec := n.up(p)
	spec.PodIPs = []string{"fd00::7", "10.1.0.7"} // the node is of the other family
	spec.Volumes = map[string]Volume{"data": {HostPath: "/v/data"}}
	_, _ = n.StartContainer(n.ctx(), spec) // the arguments are no program of the fake's
	config := request[*runtimeapi.CreateContainerRequest](n, "CreateContainer").GetConfig()
	if got := strings.Join(config.GetArgs(), " "); got != "blue 10.1.0.7" {
		t.Errorf("args %q", got)
	}
	if got := config.GetMounts()[0].GetHostPath(); got != "/v/data/by/blue" {
		t.Errorf("subPath mounted from %q", got)
	}

	p.Spec.Containers[0].VolumeMounts[0] = v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "forbidden"}
	_, err := n.StartContainer(n.ctx(), spec)
	wantReason(t, err, reason.CreateContainerConfigError, `failed to prepare subPath for volumeMount "data" of container "web"`)
}

func TestRestartCountFromLogs(t *testing.T) {
	n := start(t, false)
	p := web()
	if got := n.RestartCountFromLogs(p, "web"); got != 0 {
		t.Errorf("without logs: %d", got)
	}
	dir := pod.ContainerLogDir(n.cfg.PodLogsDir, p.Namespace, p.Name, p.UID, "web")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "3.log.20260101-000000.gz", "x.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.RestartCountFromLogs(p, "web"); got != 4 {
		t.Errorf("got %d, want 4", got)
	}
}
