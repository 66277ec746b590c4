// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestAFailureIsToldAgain: at once when it is another, else each reminder.
func TestAFailureIsToldAgain(t *testing.T) {
	w, now := &volumeWork{}, time.Unix(1000, 0)
	for _, step := range []struct {
		after   time.Duration
		text    string
		reports bool
	}{
		{0, "a", true},
		{time.Second, "a", false},
		{time.Second, "b", true},
		{pod.EventReminder - time.Second, "b", false},
		{time.Second, "b", true},
		{time.Minute, "b", false},
	} {
		now = now.Add(step.after)
		if got := w.reports(step.text, now); got != step.reports {
			t.Errorf("%s, %s later: %v, want %v", step.text, step.after, got, step.reports)
		}
	}
}

// TestLaneByAClockThatIsSet: a pass that is due at a time of the wall clock begins when
// that has come, also if the clock has been set since, and when it was set back.
func TestLaneByAClockThatIsSet(t *testing.T) {
	began := time.Now() // with a monotonic reading, as the service's clock has
	for name, c := range map[string]struct {
		now    time.Time
		begins bool
		wait   time.Duration
	}{
		"at once":        {began, false, time.Hour},
		"half of it":     {began.Add(time.Hour / 2), false, time.Hour / 2},
		"all of it":      {began.Add(time.Hour), true, 0},
		"set forward":    {began.Round(0).Add(10 * time.Hour), true, 0},
		"set back":       {began.Round(0).Add(-10 * time.Hour), true, 0},
		"set back by 1s": {began.Round(0).Add(-time.Second), true, 0},
	} {
		var l, none lane
		l.rest(began.Add(time.Hour), began)
		if due := l.due; strings.Contains(due.String(), "m=") {
			t.Fatalf("due at %s, which no clock that is set brings nearer", due)
		}
		if begins, wait := l.next(c.now); begins != c.begins || wait != c.wait {
			t.Errorf("%s: begins %v, wait %s", name, begins, wait)
		}
		if begins, wait := none.next(c.now); begins || wait != 0 {
			t.Errorf("%s: a lane without a time begins %v, wait %s", name, begins, wait)
		}
	}
}

// TestLanes: volumes of one claim share a lane, whoever names it; so do those that are mounted
// without a claim or a driver. A pod that is declared again has the same lanes.
func TestLanes(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "files", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
		{Name: "again", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}},
		{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
	}}}
	w := newWork("u")
	for range 2 {
		w.declared(p)
	}
	var got [][]string
	for _, l := range w.lanes {
		got = append(got, l.volumes)
	}
	want := [][]string{{"files"}, {"data", "again"}, {"nfs", "host"}, {"inline"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("lanes %q, want %q", got, want)
	}
}
