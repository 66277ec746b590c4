// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serves is what a container does that runs until it is told to end.
const serves = "trap 'exit 0' TERM; sleep infinity"

// life is a random pod whose containers end, fail, are probed and killed. It refers to nothing,
// so that it can be a static pod too.
func (m *maker) life(name string) (*corev1.Pod, []fault) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &p.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	s.TerminationGracePeriodSeconds = new(int64(m.IntN(3) + 1))
	s.AutomountServiceAccountToken = new(false)
	s.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for i := range max(0, m.IntN(4)-1) {
		s.InitContainers = append(s.InitContainers, m.initLife(fmt.Sprintf("init-%d", i)))
	}
	for i := range m.IntN(3) + 1 {
		s.Containers = append(s.Containers, m.mainLife(fmt.Sprintf("main-%d", i)))
	}
	if m.one(10) { // of what ends by itself too it depended on the pace how far it comes
		s.ActiveDeadlineSeconds = new(int64(m.IntN(8) + 3))
		s.InitContainers = nil
		for i := range s.Containers {
			s.Containers[i] = living(s.Containers[i].Name, m.told())
		}
	}
	for i := range s.Containers {
		// One that a probe ends is to fail: of one that succeeds, with a back-off in between, a kubelet
		// forgets that it is to run again.
		if c := &s.Containers[i]; c.LivenessProbe != nil || c.StartupProbe != nil {
			last := len(c.Command) - 1
			c.Command[last] = strings.Replace(c.Command[last], "exit 0' TERM", "exit 3' TERM", 1)
		}
	}
	if restartsAll(p) { // else which instance is the one that fails its probe depends on the pace
		for i := range s.Containers {
			s.Containers[i].LivenessProbe = nil
		}
	}
	return p, nil
}

// living is a container with a script, in which NAME stands for its own.
func living(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: server, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", strings.ReplaceAll(script, "NAME", name)},
		VolumeMounts: []corev1.VolumeMount{{Name: "state", MountPath: "/state"}},
	}
}

// ends are ways of a container to end.
func (m *maker) ends() string {
	return pick(m, "exit 0", "sleep 0.3; exit 0", "exit 1", "exit 3", "sleep 0.2; exit 3", "oom", "echo -n bye > /dev/termination-log; exit 5",
		"echo last words; exit 6", "echo -n done > /dev/termination-log; exit 0", "exit 255", "kill -9 1; exit 1")
}

// begins fails some times before it goes on with then.
func (m *maker) begins(then string) string {
	fails := pick(m, "exit 1", "exit 3", "oom", "echo -n not yet > /dev/termination-log; exit 4")
	once := "if test -e /state/NAME-a; then " + then + "; fi; touch /state/NAME-a; " + fails
	if m.one(2) {
		return once
	}
	return "if test -e /state/NAME-b; then " + then + "; fi; if test -e /state/NAME-a; then touch /state/NAME-b; exit 3; fi; touch /state/NAME-a; " + fails
}

// told are ways to run until told to end.
func (m *maker) told() string {
	return pick(m, serves, "trap 'exit 3' TERM; sleep infinity", "trap '' TERM; sleep infinity", "trap 'sleep 0.3; exit 0' TERM; sleep infinity",
		"trap 'echo -n told > /dev/termination-log; exit 9' TERM; sleep infinity")
}

func (m *maker) initLife(name string) corev1.Container {
	sidecar, short := m.one(3), false
	script := "sleep 0.1; exit 0"
	switch {
	case m.one(6):
		script = m.begins(pick(m, "exit 0", "sleep 0.2; exit 0"))
	case m.one(10):
		script = m.ends()
	}
	if sidecar {
		short = m.one(7)
		script = pick(m, serves, serves, m.told(), m.begins(serves))
		if short { // at once: of one that lives for a moment it is chance whether a kubelet sees it running
			script = pick(m, "exit 0", "exit 1", "oom", "echo -n bye > /dev/termination-log; exit 5")
		}
	}
	c := living(name, script)
	c.TerminationMessagePolicy = pick(m, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	if sidecar {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		m.watched(&c, short)
	} else {
		m.rules(&c)
	}
	return c
}

func (m *maker) mainLife(name string) corev1.Container {
	script, short, begins := serves, m.one(3), false
	switch {
	case short:
		script = m.ends()
	case m.one(4):
		script = m.begins(pick(m, serves, serves, "exit 0", "exit 3"))
		begins = true
	case m.one(3):
		script = m.told()
	}
	c := living(name, script)
	c.TerminationMessagePolicy = pick(m, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	switch {
	case m.one(30):
		c.Command = []string{"/no/such/program"}
	case m.one(29):
		c.Image = nowhere
	case m.one(40):
		c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true)}
	}
	m.rules(&c)
	m.watched(&c, short)
	if begins && c.Lifecycle != nil {
		c.Lifecycle.PostStart = nil // it depended on the pace whether it runs in the first
	}
	return c
}

// rules give a container a restart policy of its own.
func (m *maker) rules(c *corev1.Container) {
	if !m.one(5) {
		return
	}
	c.RestartPolicy = new(pick(m, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever))
	if strings.HasPrefix(c.Name, "init") {
		c.RestartPolicy = new(pick(m, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever))
	}
	for range m.IntN(3) {
		action := corev1.ContainerRestartRuleActionRestart
		if m.one(5) {
			action = corev1.ContainerRestartRuleActionRestartAllContainers
		}
		c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: pick(m, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn),
			Values:   pick(m, []int32{3}, []int32{1, 4}, []int32{0}, []int32{137, 3}),
		}})
	}
}

func shell(script string, args ...string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: append([]string{"sh", "-c", script}, args...)}}
}

// probe is a random probe, each second.
func (m *maker) probe(scripts ...string) *corev1.Probe {
	p := &corev1.Probe{ProbeHandler: shell(pick(m, scripts...)), PeriodSeconds: 1, FailureThreshold: int32(m.IntN(2) + 1), InitialDelaySeconds: int32(m.IntN(2))}
	switch {
	case m.one(12):
		p.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1), Host: "127.0.0.1"}} // refuses connections
	case m.one(11):
		p.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(1), Host: "127.0.0.1", Path: "/"}}
	}
	return p
}

// watched gives a container probes and hooks; one that is short-lived only what is not asked
// of it while it runs.
func (m *maker) watched(c *corev1.Container, short bool) {
	if short {
		if m.one(6) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: shell("true").Exec}}
		}
		return
	}
	second := strings.ReplaceAll("test -e /state/NAME-WHAT && exit 0; touch /state/NAME-WHAT; echo first; exit 1", "NAME", c.Name)
	what := func(name string) string { return strings.ReplaceAll(second, "WHAT", name) }
	if m.one(4) {
		c.ReadinessProbe = m.probe("true", "false", "echo not yet; exit 2", what("ready"))
		if m.one(3) {
			c.ReadinessProbe.SuccessThreshold = 2
		}
	}
	if m.one(5) {
		c.StartupProbe = m.probe("true", "true", "false", what("startup"))
	}
	if m.one(5) {
		c.LivenessProbe = m.probe("true", "true", "false", "echo sick; exit 1", what("live"), "sleep 5")
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		if p != nil && m.one(3) {
			p.TerminationGracePeriodSeconds = new(int64(1))
		}
	}
	if !m.one(4) {
		return
	}
	hook := func(scripts ...string) *corev1.LifecycleHandler {
		if m.one(6) {
			return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
		}
		return &corev1.LifecycleHandler{Exec: shell(pick(m, scripts...)).Exec}
	}
	c.Lifecycle = &corev1.Lifecycle{}
	if m.one(2) {
		c.Lifecycle.PostStart = hook("true", "true", "sleep 0.2", "false", "echo no >&2; exit 4", what("hook"))
		if m.one(10) {
			c.Lifecycle.PostStart.Exec, c.Lifecycle.PostStart.Sleep = &corev1.ExecAction{Command: []string{"/no/such/hook"}}, nil
		}
	}
	if m.one(2) || c.Lifecycle.PostStart == nil {
		c.Lifecycle.PreStop = hook("true", "false", "sleep 10", "sleep 0.2")
	}
}
