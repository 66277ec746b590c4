// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// asked is how often each log of TestLogs is asked for.
const asked = 40

// TestLogs gives containers of both agents the same random logs, damaged ones among them, and asks
// for them with the same random options. The answers are the same, but for what testdata/logs.txt lists.
func TestLogs(t *testing.T) {
	table := readTable(t, "testdata/logs.txt")
	cp := harness.StartControlPlane(t)
	sides := startSides(t, cp, func(c *kubeletv1beta1.KubeletConfiguration) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
	})
	j := &judge{table: table, told: map[string][]string{}}
	answers := map[string]int{}
	for part := range slices.Chunk(wanted(), 50) {
		for _, n := range part {
			if err := create(t, sides, newMaker(*seed, n, "").talker(fmt.Sprintf("life-%d", n))); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		for _, n := range part {
			names = append(names, fmt.Sprintf("life-%d", n))
		}
		for _, s := range sides {
			s.calm(t, names, 5*time.Second)
		}
		for _, n := range part {
			m := newMaker(*seed+1<<38, n, "")
			name := fmt.Sprintf("life-%d", n)
			first, last := m.logFile(), m.logFile()
			for _, s := range sides {
				s.writeLogs(t, name, first, last)
			}
			if *only >= 0 {
				t.Logf("0.log:\n%s\n1.log:\n%s", first, last)
			}
			for range asked {
				o := m.logOptions(m.number%3 == 0)
				reference, own := sides[0].logOf(t, name, o), sides[1].logOf(t, name, o)
				answers[strings.Fields(reference)[0]]++
				what := fmt.Sprintf("%s: ", optionsText(o))
				if reference != own {
					j.note(name, []string{what + reference}, []string{what + own})
				}
			}
		}
		for _, s := range sides {
			s.finish(t)
		}
	}
	t.Logf("%v; seed %d", answers, *seed)
	if *only < 0 && answers["log"] < *count {
		t.Error("too few answers to say anything")
	}
	j.report(t, "testdata/logs.txt")
}

// talker is a pod with one container: every third has ended, others run, with or without an
// instance before.
func (m *maker) talker(name string) *corev1.Pod {
	c := living("main-0", pick(m, serves, m.begins(serves)))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		Volumes: []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if m.number%3 == 0 {
		c = living("main-0", pick(m, "exit 0", m.begins("exit 0")))
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// writeLogs replaces what the logs of a pod's container hold: of its last instance and those before.
func (s *side) writeLogs(t *testing.T, name string, before, last []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.place.PodLogs, s.ns+"_"+name+"_*", "main-0", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %s has no logs: %v", s.agent, name, err)
	}
	slices.Sort(files)
	for i, file := range files {
		content := before
		if i == len(files)-1 {
			content = last
		}
		if err := os.WriteFile(file, content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// logsBegan is the time of the first line of a log.
var logsBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// logFile is a random log as runtimes write them, or one that is damaged.
func (m *maker) logFile() []byte {
	var b bytes.Buffer
	at, json, damaged := logsBegan, m.one(8), m.one(3)
	for range pick(m, 0, 1, 3, 10, 30, 200) {
		at = at.Add(time.Duration(m.IntN(3e9)))
		stamp := at.Format("2006-01-02T15:04:05.000000000Z07:00")
		if m.one(4) {
			stamp = at.In(time.FixedZone("", 2*3600)).Format(time.RFC3339Nano)
		}
		stream, tag := pick(m, "stdout", "stdout", "stderr"), pick(m, "F", "F", "F", "P")
		text := pick(m, "", "a", " two words ", "ümlaut", "\xff\xfe", "tab\tand\rreturn", strings.Repeat("long ", m.IntN(400)), strings.Repeat("y", 16<<10), strings.Repeat("z", 40<<10))
		line := stamp + " " + stream + " " + tag + " " + text
		if json {
			line = fmt.Sprintf(`{"log":%q,"stream":%q,"time":%q}`, strings.ToValidUTF8(strings.ReplaceAll(text, "\r", ""), "")+pick(m, "\\n", ""), stream, stamp)
			line = strings.ReplaceAll(line, `\\n`, `\n`)
		}
		if damaged && m.one(5) {
			line = pick(m, "", " ", "nothing that is known", stamp, stamp+" "+stream, stamp+" "+stream+" F", stamp+" "+stream+" "+text, "yesterday "+stream+" F "+text,
				stamp+" stdin F x", stamp+" "+stream+" F:P:x "+text, stamp+" "+stream+"  x", stamp+" "+stream+" X "+text, `{"log":"json\n","stream":"stdout","time":"`+stamp+`"}`, "{", "\x00")
		}
		b.WriteString(line + "\n")
	}
	if m.one(5) && b.Len() > 0 {
		b.Truncate(b.Len() - 1 - m.IntN(min(10, b.Len())))
	}
	return b.Bytes()
}

// logOptions are random; a log is followed only of what has ended.
func (m *maker) logOptions(ended bool) *corev1.PodLogOptions {
	o := &corev1.PodLogOptions{Previous: m.one(4), Timestamps: m.one(2), Follow: ended && m.one(3)}
	if m.one(2) {
		o.TailLines = new(pick(m, int64(0), 1, 2, 5, 29, 150, 1000))
	} else if m.one(4) {
		o.Stream = new(pick(m, corev1.LogStreamStdout, corev1.LogStreamStderr, corev1.LogStreamAll))
	}
	if m.one(3) {
		o.LimitBytes = new(pick(m, int64(1), 2, 7, 100, 5000, 16384, 100000, 1<<40))
	}
	switch {
	case m.one(4):
		o.SinceTime = &metav1.Time{Time: logsBegan.Add(time.Duration(m.IntN(60)) * time.Second)}
	case m.one(6):
		o.SinceSeconds = new(pick(m, int64(1), 3600, 1<<30))
	}
	return o
}

func optionsText(o *corev1.PodLogOptions) string {
	var all []string
	for _, option := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(o.String(), "&PodLogOptions{"), ",}"), ",") {
		if name, value, _ := strings.Cut(option, ":"); value != "" && value != "nil" && value != "<nil>" && value != "false" {
			all = append(all, name+"="+strings.TrimPrefix(value, "*"))
		}
	}
	return "logs with " + strings.Join(all, " ")
}

// logOf is a side's answer to a request for a log.
func (s *side) logOf(t *testing.T, name string, o *corev1.PodLogOptions) string {
	t.Helper()
	o = o.DeepCopy()
	o.Container = "main-0"
	var text []byte
	stream, err := s.cp.Admin.CoreV1().Pods(s.ns).GetLogs(name, o).Stream(t.Context()) // as kubectl does
	if err == nil {
		text, err = io.ReadAll(stream)
		err = errors.Join(err, stream.Close())
	}
	p, get := s.cp.Admin.CoreV1().Pods(s.ns).Get(t.Context(), name, metav1.GetOptions{})
	if get != nil {
		t.Fatal(get)
	}
	names := s.flattener(p).Names
	if err != nil {
		return "error " + names.Text(err.Error())
	}
	// What is long tells by its beginning, its end and its length.
	if len(text) > 400 {
		text = fmt.Appendf(nil, "%q … %d bytes, sum %x … %q", text[:150], len(text), sha256.Sum256(text), text[len(text)-150:])
		return "log " + string(text)
	}
	return fmt.Sprintf("log %q", names.Text(string(text)))
}
