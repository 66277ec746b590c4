// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// malice is a pod that means harm.
type malice struct {
	name string
	pod  func(*attack) *corev1.Pod
	// under way says why the harm has not begun.
	underWay func(*corev1.Pod) error
}

// attack is what malicious pods know of the node.
type attack struct {
	*pods
	// loopback is a server of the node that no pod may have the node ask.
	loopback string
	asked    atomic.Int64
}

// files is how many files a pod makes in a folder.
func files() int {
	if testing.Short() {
		return 20_000
	}
	return 1_000_000
}

var malices = []malice{
	{"deep-folders", (*attack).deepFolders, runs},
	{"many-files", (*attack).manyFiles, exited("many")},
	{"sparse-hosts", (*attack).sparseHosts, restarted(2)},
	{"long-last-words", (*attack).lastWords, restarted(2)},
	{"log-flood", (*attack).logFlood, runs},
	{"fifo-for-a-file", (*attack).fifo, waitsFor("main")},
	{"link-for-a-file", (*attack).link, waitsFor("main")},
	{"hanging-probes", (*attack).hangingProbes, runs},
	{"flooding-probes", (*attack).floodingProbes, runs},
	{"probes-not-utf8", (*attack).notUTF8, isReady},
	{"redirecting-probes", (*attack).redirectingProbes, runs},
	{"redirecting-hook", (*attack).redirectingHook, restarted(1)},
	{"event-flood", (*attack).eventFlood, restarted(1)},
}

// TestMaliciousPods runs all of them at once on one node, and then removes them.
func TestMaliciousPods(t *testing.T) {
	defer write(t)
	cp := harness.StartControlPlane(t)
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) { c.MaxPods = 200 }})
	if err := n.Runtime.ImportImage(t.Context(), harness.The(t).Archive(t, images.Busybox), images.Busybox); err != nil {
		t.Fatal(err)
	}
	a := &attack{pods: newPods(t, cp, n)}
	a.listen()
	bystander := a.ready("bystander")
	b := limited(t, n)
	for _, m := range malices {
		pod := m.pod(a)
		pod.Name = m.name
		a.create(pod)
	}
	for _, m := range malices {
		a.await(m.name, 3*time.Minute, "to do harm", m.underWay)
	}
	harness.Rest(t, *flooding)
	up, gone := a.fresh("meanwhile", 2*time.Minute)
	a.steady(bystander)
	for _, m := range malices {
		a.delete(m.name)
	}
	for _, m := range malices {
		a.gone(m.name, 2*time.Minute)
	}
	a.fresh("after", time.Minute)
	a.steady(bystander)
	if asked := a.asked.Load(); asked > 0 {
		t.Errorf("the node asked a server of its own loopback %d times, because a pod told it to", asked)
	}
	fullest, logs := b.judge(t)
	results = append(results, result{"malicious pods, all at once", int64(len(malices)), up, gone, fullest, logs})
}

// listen is the server on the node's loopback.
func (a *attack) listen() {
	a.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { a.asked.Add(1) })}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	a.t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			a.t.Error(err)
		}
	})
	a.loopback = "http://" + l.Addr().String() + "/"
}

func runs(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return errors.New("it does not run")
	}
	return nil
}

func restarted(times int32) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount < times {
			return fmt.Errorf("it has not restarted %d times", times)
		}
		return nil
	}
}

// exited: an init container has done its work.
func exited(name string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, c := range pod.Status.InitContainerStatuses {
			if c.Name == name && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
				return nil
			}
		}
		return fmt.Errorf("%s has not ended well", name)
	}
}

// waitsFor: a container is kept from starting, with a reason.
func waitsFor(name string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; c.Name == name && w != nil && strings.HasPrefix(w.Reason, "Create") {
				return nil
			}
		}
		return fmt.Errorf("%s is not refused", name)
	}
}

func (a *attack) shell(script string) *corev1.Pod {
	pod := a.pod("")
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = images.Busybox, []string{"sh", "-c", script}
	return pod
}

// scratch gives a pod an emptyDir and an init container that fills it.
func scratch(pod *corev1.Pod, image string, command ...string) *corev1.Pod {
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	mount := []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "many", Image: image, Command: command, VolumeMounts: mount}}
	pod.Spec.Containers[0].VolumeMounts = mount
	return pod
}

func (a *attack) deepFolders() *corev1.Pod {
	return scratch(a.pod(""), images.Hello, "/hello", "deep", "/scratch", "2100")
}

func (a *attack) manyFiles() *corev1.Pod {
	return scratch(a.pod(""), images.Hello, "/hello", "many", "/scratch/many", fmt.Sprint(files()))
}

// sparseHosts makes every file that is mounted into it as large as it likes.
func (a *attack) sparseHosts() *corev1.Pod {
	return a.shell("for f in /etc/hosts /etc/hostname /etc/resolv.conf /dev/termination-log; do truncate -s 400G $f; done; exit 1")
}

// lastWords are as long as may be, and not UTF-8, in the file and in the log.
func (a *attack) lastWords() *corev1.Pod {
	pod := a.shell("head -c 5000000 /dev/urandom; exit 1")
	second := pod.Spec.Containers[0]
	second.Name = "file"
	second.Command = []string{"sh", "-c", `i=0; while [ $i -lt 3000 ]; do printf '\346\227\245\351'; i=$((i+1)); done >/dev/termination-log; exit 1`}
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	return pod
}

func (a *attack) logFlood() *corev1.Pod {
	return a.shell("while :; do head -c 100000 /dev/urandom; sleep 1; done")
}

// environment takes a variable of the main container from a file of the volume.
func environment(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{
		FileKeyRef: &corev1.FileKeySelector{VolumeName: "scratch", Path: "env", Key: "X"},
	}}}
	pod.Spec.Containers[0].VolumeMounts = nil
	return pod
}

func (a *attack) fifo() *corev1.Pod {
	return environment(scratch(a.pod(""), images.Busybox, "mkfifo", "/scratch/env"))
}

func (a *attack) link() *corev1.Pod {
	return environment(scratch(a.pod(""), images.Busybox, "ln", "-s", "/etc/shadow", "/scratch/env"))
}

// hangingProbes are asked for by more containers than one prober has time for.
func (a *attack) hangingProbes() *corev1.Pod {
	pod := a.pod("")
	hang := corev1.Probe{ProbeHandler: asks("/slow?for=1h"), PeriodSeconds: 1, TimeoutSeconds: 3600}
	for i := range 12 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("more-%d", i), Image: images.Hello, Args: []string{"sleep", "2h"}, ReadinessProbe: &hang, LivenessProbe: &hang,
		})
	}
	return pod
}

// floodingProbes answer with more than anybody reads.
func (a *attack) floodingProbes() *corev1.Pod {
	pod := a.pod("")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: asks("/bytes?n=100000000000"), PeriodSeconds: 1, TimeoutSeconds: 10}
	for i := range 4 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("exec-%d", i), Image: images.Hello, Args: []string{"sleep", "2h"},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "bytes", "16000000"}}},
				PeriodSeconds: 1, TimeoutSeconds: 10,
			},
		})
	}
	return pod
}

// notUTF8 succeeds with text that is not: its pod is Ready all the same.
func (a *attack) notUTF8() *corev1.Pod {
	pod := a.pod("")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: asks("/bytes?n=20000"), PeriodSeconds: 1, TimeoutSeconds: 10}
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/hello", "bytes", "20000"}}}, PeriodSeconds: 5, TimeoutSeconds: 30,
	}
	return pod
}

func (a *attack) redirectingProbes() *corev1.Pod {
	pod := a.pod("")
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: asks("/redirect?to=" + a.loopback), PeriodSeconds: 1}
	return pod
}

// redirectingHook: a redirect to another host is not followed, as in a kubelet.
func (a *attack) redirectingHook() *corev1.Pod {
	pod := a.pod("")
	handler := asks("/redirect?to=" + a.loopback)
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{HTTPGet: handler.HTTPGet}, PreStop: &corev1.LifecycleHandler{HTTPGet: handler.HTTPGet},
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "ends", Image: images.Hello, Args: []string{"exit", "1"}})
	return pod
}

// eventFlood gives as many reasons for events as it can.
func (a *attack) eventFlood() *corev1.Pod {
	pod := a.pod("", "exit", "1")
	for i := range 10 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("more-%d", i), Image: images.Hello, Args: []string{"-exit-after=1s", "-exit-code=1", fmt.Sprintf("-http=:%d", 9000+i)},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/no/such/program"}}},
				PeriodSeconds: 1, FailureThreshold: 1000,
			},
		})
	}
	return pod
}
