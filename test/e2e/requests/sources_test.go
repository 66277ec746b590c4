// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/test/e2e/compare"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// stages are how often the objects of TestSources change.
const stages = 3

// settleFor is longer than what a kubelet takes to hear of a change and to try a mount again.
var settleFor = flag.Duration("settle", 150*time.Second, "how long an agent may take to use what has changed")

// place finds what Sextant says before what is wrong with a source of a projected volume.
var place = regexp.MustCompile(`\bsources\[[0-9]+\]: `)

// TestSources gives both agents the same random pods with volumes and variables from ConfigMaps,
// Secrets and fields of the pods. These objects are there, come later, change, go and come back, and
// some containers are restarted after that. What volumes and variables hold then is the same, as is
// what becomes of the pods, but for what testdata/sources.txt lists.
func TestSources(t *testing.T) { compareSources(t, nil) }

// TestSourcesKills is TestSources with a Sextant whose services are killed, as in TestKills.
func TestSourcesKills(t *testing.T) { compareSources(t, kills) }

// compareSources is such a test. beside is done to each side as long as it has pods; nil for nothing.
func compareSources(t *testing.T, beside func(*testing.T, *side) (stop func())) {
	t.Helper()
	table := readTable(t, "testdata/sources.txt")
	cp := harness.StartControlPlane(t)
	sides := startSides(t, cp, func(c *kubeletv1beta1.KubeletConfiguration) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
		c.SyncFrequency = metav1.Duration{Duration: 5 * time.Second}
	})
	j := &judge{table: table, told: map[string][]string{}}
	numbers := wanted()
	refused, ended := 0, 0
	for part := range slices.Chunk(numbers, cmp.Or(*wave, 30)) {
		var stops []func()
		for _, s := range sides {
			if beside != nil {
				stops = append(stops, beside(t, s))
			}
		}
		consumers := createConsumers(t, sides, part)
		refused += len(part) - len(consumers)
		for stage := range stages {
			ended += j.stage(t, sides, consumers, stage)
		}
		for _, s := range sides {
			s.rt.ResetCalls()
			s.finish(t)
		}
		for _, stop := range stops {
			stop()
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pods, of which the API server refused %d; containers were ended %d times; seed %d", len(numbers), refused, ended, *seed)
	if *only < 0 && (refused > len(numbers)/2 || ended == 0) {
		t.Error("too few pods to say anything")
	}
	j.report(t, "testdata/sources.txt")
}

// createConsumers gives all sides the pods with the numbers and what they refer to at first. It returns those
// that the API server takes.
func createConsumers(t *testing.T, sides []*side, numbers []int) (all []*consumer) {
	t.Helper()
	for _, n := range numbers {
		d := newMaker(*seed, n, "").consumer(fmt.Sprintf("consumer-%d", n))
		if *only >= 0 {
			text, err := yaml.Marshal(d)
			t.Logf("%s%v", text, err)
		}
		for _, s := range sides {
			s.update(t, d, 0)
		}
		err := create(t, sides, d.Pod)
		if err == nil {
			all = append(all, d)
		} else if *only >= 0 {
			t.Log(err)
		}
	}
	return all
}

// stage gives all sides the objects of a stage but the first, which they have, and compares what the
// pods make of them, once their containers were ended. It returns of how many pods they were.
func (j *judge) stage(t *testing.T, sides []*side, consumers []*consumer, stage int) (ended int) {
	t.Helper()
	when := fmt.Sprintf("stage %d", stage)
	var names []string
	for _, d := range consumers {
		names = append(names, d.Pod.Name)
	}
	if stage > 0 {
		for _, s := range sides {
			for _, d := range consumers {
				s.update(t, d, stage)
			}
		}
		j.converge(t, when, names, sides)
		for _, d := range consumers {
			if !d.Ends[stage] {
				continue
			}
			for _, s := range sides {
				s.endContainers(d.Pod.Name)
			}
			ended++
		}
	}
	for _, s := range sides {
		s.calm(t, names, calmFor)
	}
	j.converge(t, when, names, sides)
	for _, name := range names {
		reference, own := results(t, sides, name)
		compareStories(j, when, name, reference, own)
	}
	return ended
}

// converge waits until the agents differ as listed only, or for as long as that may take.
func (j *judge) converge(t *testing.T, when string, names []string, sides []*side) {
	t.Helper()
	err := harness.Within(t.Context(), *settleFor, func(context.Context) error {
		var err error
		for _, name := range names {
			reference, own := results(t, sides, name)
			for _, y := range []*story{reference, own} {
				y.events, y.calls = nil, nil
			}
			for _, d := range j.table.Judge(compare.Diff(reference.lines(when), own.lines(when))).Unlisted {
				err = errors.Join(err, fmt.Errorf("%s: %s", name, d))
			}
		}
		return err
	})
	if err != nil {
		t.Logf("%s: the agents differ still after %s:\n%v", when, *settleFor, err)
	}
}

// consumer is a pod and what it refers to.
type consumer struct {
	Pod     *corev1.Pod
	Sources []source
	Labels  [stages]map[string]string
	Ends    [stages]bool // containers that run are ended
}

// source is an object that a pod refers to, by stage; nil when it is not there.
type source struct {
	Secret   bool
	Name     string
	Contents [stages]*content
}

type content struct {
	Data      map[string]string
	Immutable bool
	Login     bool // of a registry
}

var keys = []string{"a", "b", "c.d", "E_F"}

// consumer is a random pod with objects that change.
func (m *maker) consumer(name string) *consumer {
	d := &consumer{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for stage := range stages {
		d.Labels[stage] = map[string]string{"stage": "any"}
		if m.one(2) {
			d.Labels[stage] = map[string]string{"stage": fmt.Sprint(stage), "other": "x"}
		}
		d.Ends[stage] = m.one(2)
	}
	d.Pod.Labels, d.Pod.Annotations = d.Labels[0], map[string]string{"note": "a\n\"b\"", "stage": fmt.Sprint(d.Labels[0])}
	for i := range m.IntN(4) + 1 {
		d.Sources = append(d.Sources, m.source(fmt.Sprintf("%s-%d", name, i), m.one(2)))
	}
	s := &d.Pod.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure)
	s.TerminationGracePeriodSeconds = new(int64(1))
	s.AutomountServiceAccountToken = new(m.one(5))
	s.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if m.one(4) {
		s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(3000)), RunAsUser: maybe(m, 2, int64(1000))}
	}
	for i := range m.IntN(4) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: m.volumeOf(d.Sources)})
	}
	if m.one(4) {
		s.InitContainers = append(s.InitContainers, m.consuming("init-0", "sleep 0.1; exit 0", d))
	}
	if m.one(4) {
		c := m.consuming("init-1", serves, d)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range m.IntN(2) + 1 {
		s.Containers = append(s.Containers, m.consuming(fmt.Sprintf("main-%d", i), serves, d))
	}
	if m.one(8) {
		login := source{Secret: true, Name: name + "-login"}
		for stage := range stages {
			if stage > 0 || m.one(3) {
				login.Contents[stage] = &content{Login: true}
			}
		}
		d.Sources = append(d.Sources, login)
		s.ImagePullSecrets = []corev1.LocalObjectReference{local(login.Name)}
		s.Containers[0].Image, s.Containers[0].ImagePullPolicy = locked, pick(m, corev1.PullIfNotPresent, corev1.PullAlways)
	}
	return d
}

// source is a random object.
func (m *maker) source(name string, secret bool) source {
	o := source{Name: name, Secret: secret}
	made := func(stage int) *content {
		c := &content{Data: map[string]string{}, Immutable: m.one(6)}
		for _, k := range some(m, keys...) {
			c.Data[k] = pick(m, "", "same", fmt.Sprintf("%s %d", k, stage), "$(PLAIN)\n", "\x00\xff")
		}
		if m.one(2) {
			c.Data["a"] = fmt.Sprintf("a %d", stage)
		}
		return c
	}
	for stage := range stages {
		switch was := o.Contents[max(0, stage-1)]; {
		case stage > 0 && was != nil && was.Immutable: // agents watch it no longer
			o.Contents[stage] = was
		case m.one(4): // it is not there
		case stage > 0 && m.one(3):
			o.Contents[stage] = was
		default:
			o.Contents[stage] = made(stage)
		}
	}
	return o
}

// volumeOf is a random volume of sources.
func (m *maker) volumeOf(sources []source) corev1.VolumeSource {
	mode := func() *int32 { return maybe(m, 3, pick(m, int32(0o400), int32(0o644), int32(0o440), int32(0o755))) }
	items := func() (all []corev1.KeyToPath) {
		if m.one(2) {
			return nil
		}
		for _, k := range some(m, keys...) {
			all = append(all, corev1.KeyToPath{Key: k, Path: pick(m, k, "deep/"+k, "same"), Mode: mode()})
		}
		return all
	}
	fields := some(m,
		corev1.DownwardAPIVolumeFile{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Mode: mode()},
		corev1.DownwardAPIVolumeFile{Path: "deep/annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
		corev1.DownwardAPIVolumeFile{Path: "label", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['stage']"}, Mode: mode()},
		corev1.DownwardAPIVolumeFile{Path: "none", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['other']"}})
	o := pick(m, sources...)
	optional := maybe(m, 2, !m.one(3))
	switch {
	case m.one(6):
		return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: mode(), Items: fields}}
	case m.one(3):
		v := &corev1.ProjectedVolumeSource{DefaultMode: mode()}
		for _, o := range some(m, sources...) {
			if o.Secret {
				v.Sources = append(v.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: local(o.Name), Items: items(), Optional: maybe(m, 2, !m.one(3))}})
			} else {
				v.Sources = append(v.Sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local(o.Name), Items: items(), Optional: maybe(m, 2, !m.one(3))}})
			}
		}
		v.Sources = append(v.Sources, some(m,
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields}},
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}})...)
		return corev1.VolumeSource{Projected: v}
	case o.Secret:
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: o.Name, DefaultMode: mode(), Items: items(), Optional: optional}}
	}
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local(o.Name), DefaultMode: mode(), Items: items(), Optional: optional}}
}

// consuming is a container with variables and mounts of a pod's sources.
func (m *maker) consuming(name, script string, d *consumer) corev1.Container {
	c := living(name, script)
	for _, v := range d.Pod.Spec.Volumes[1:] {
		if m.one(3) {
			continue
		}
		mount := corev1.VolumeMount{Name: v.Name, MountPath: "/mnt/" + v.Name, ReadOnly: m.one(2)}
		if m.one(5) {
			mount.SubPath = pick(m, "a", "deep/b", "labels", "same")
		}
		c.VolumeMounts = append(c.VolumeMounts, mount)
	}
	if slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return v.SubPath != "" }) {
		// A container that lacks a variable keeps, with a kubelet, the subPath as it was when it was
		// first to be made.
		return c
	}
	for i, o := range d.Sources {
		optional := maybe(m, 2, !m.one(3))
		switch {
		case m.one(3) && o.Secret:
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("V_%d", i), ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(o.Name), Key: pick(m, keys...), Optional: optional}}})
		case m.one(3):
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("V_%d", i), ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local(o.Name), Key: pick(m, keys...), Optional: optional}}})
		case m.one(4) && o.Secret:
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: pick(m, "", "P_"), SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local(o.Name), Optional: optional}})
		case m.one(4):
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: pick(m, "", "P_"), ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local(o.Name), Optional: optional}})
		}
	}
	if m.one(3) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "LABEL", ValueFrom: field("metadata.labels['stage']")}, corev1.EnvVar{Name: "NOTE", ValueFrom: field("metadata.annotations['stage']")})
	}
	return c
}

// update gives a side the objects of a stage.
func (s *side) update(t *testing.T, d *consumer, stage int) {
	t.Helper()
	for _, o := range d.Sources {
		var was *content
		if stage > 0 {
			was = o.Contents[stage-1]
		}
		if err := s.put(t.Context(), o, was, o.Contents[stage]); err != nil {
			t.Errorf("%s: %s: %v", s.agent, o.Name, err)
		}
	}
	if stage > 0 {
		meta, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": d.Labels[stage], "annotations": map[string]string{"stage": fmt.Sprint(d.Labels[stage])}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.cp.Admin.CoreV1().Pods(s.ns).Patch(t.Context(), d.Pod.Name, types.MergePatchType, meta, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// put makes an object that was so as it is to be.
func (s *side) put(ctx context.Context, o source, was, is *content) error {
	core := s.cp.Admin.CoreV1()
	switch {
	case was == is:
		return nil
	case is == nil && o.Secret:
		return core.Secrets(s.ns).Delete(ctx, o.Name, metav1.DeleteOptions{})
	case is == nil:
		return core.ConfigMaps(s.ns).Delete(ctx, o.Name, metav1.DeleteOptions{})
	}
	meta := metav1.ObjectMeta{Name: o.Name}
	var err error
	if o.Secret {
		secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{}, Immutable: new(is.Immutable)}
		for k, v := range is.Data {
			secret.Data[k] = []byte(v)
		}
		if is.Login {
			secret = s.login(o.Name)
		}
		if was == nil {
			_, err = core.Secrets(s.ns).Create(ctx, secret, metav1.CreateOptions{})
		} else {
			_, err = core.Secrets(s.ns).Update(ctx, secret, metav1.UpdateOptions{})
		}
		return err
	}
	settings := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{}, BinaryData: map[string][]byte{}, Immutable: new(is.Immutable)}
	for k, v := range is.Data {
		if strings.HasPrefix(v, "\x00") {
			settings.BinaryData[k] = []byte(v)
		} else {
			settings.Data[k] = v
		}
	}
	if was == nil {
		_, err = core.ConfigMaps(s.ns).Create(ctx, settings, metav1.CreateOptions{})
	} else {
		_, err = core.ConfigMaps(s.ns).Update(ctx, settings, metav1.UpdateOptions{})
	}
	return err
}

// endContainers has what runs of a pod end but its init containers.
func (s *side) endContainers(name string) {
	for _, c := range s.rt.Containers() {
		if c.GetLabels()["io.kubernetes.pod.name"] == name && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && strings.HasPrefix(c.GetMetadata().GetName(), "main") {
			s.rt.Exit(c.GetId(), 1)
		}
	}
}

// results are the stories of a pod on both sides. Where one of them makes no container yet, the
// sandbox and the images do not count: Sextant makes and pulls them while volumes are made, a kubelet
// after.
func results(t *testing.T, sides []*side, name string) (reference, own *story) {
	t.Helper()
	reference, come := sides[0].result(t, name)
	own, ownCome := sides[1].result(t, name)
	if max(come, ownCome) == stuck {
		early := func(fact string) bool {
			for _, prefix := range []string{"status.podIP", "status.conditions[PodReadyToStartContainers]", "event Normal Pull", "event Warning FailedToRetrieveImagePullSecret", "sandbox is made"} {
				if strings.HasPrefix(fact, prefix) {
					return true
				}
			}
			return false
		}
		for _, y := range []*story{reference, own} {
			y.outcome, y.events, y.calls = slices.DeleteFunc(y.outcome, early), slices.DeleteFunc(y.events, early), slices.DeleteFunc(y.calls, early)
		}
	}
	return reference, own
}

// result is the story of a pod, with what its containers that run were given and find now, and how far
// the pod has come.
func (s *side) result(t *testing.T, name string) (y *story, come progress) {
	t.Helper()
	y = s.story(t, name)
	for i := range y.events {
		y.events[i] = place.ReplaceAllString(y.events[i], "")
	}
	p, err := s.cp.Admin.CoreV1().Pods(s.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return y, stuck
	}
	come, _ = progressOf(p)
	names := s.flattener(p).Names
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		state := s.rt.Container(name, c.Name)
		if state.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		where := "container " + c.Name
		conf := s.rt.ContainerConfig(state.GetId())
		for _, e := range conf.GetEnvs() {
			if !strings.HasPrefix(e.GetKey(), "KUBERNETES_") {
				y.outcome = append(y.outcome, fmt.Sprintf("%s: %s=%q", where, e.GetKey(), names.Text(string(e.GetValue()))))
			}
		}
		for _, mount := range conf.GetMounts() {
			if strings.HasPrefix(mount.GetContainerPath(), "/mnt/") {
				y.outcome = append(y.outcome, contents(t, names, where+" "+mount.GetContainerPath(), mount.GetHostPath())...)
			}
		}
	}
	return y, come
}
