// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/restart"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, _, err := Open(store.Config{Path: filepath.Join(dir, FileName)})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecordsSurvive(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &v1.Pod{}
	p.Name, p.Namespace = "a", "default"
	raw, err := p.Marshal()
	check(t, err)
	want := Record{Source: "api", Pod: raw, Namespace: "default", Name: "a", Facts: step.Facts{
		State: step.Terminating, Admitted: &step.Admission{At: at, CgroupParent: "/kubepods/x"},
		Termination: &step.Termination{Cause: step.Deleted, Started: at, Grace: time.Minute, Deadline: at.Add(time.Minute)},
		Containers: map[string]step.Container{"web": {
			Instances: 2, Last: &step.Last{ID: "c", Exit: &step.Exit{Code: 3, At: at}},
			Crash: restart.Backoff{Delay: 10 * time.Second, Updated: at}, CrashKey: "k",
		}},
		Kills: map[string]step.Kill{"c": {Container: "web", Deadline: at, Told: true}},
		Pulls: map[step.Key]step.PullFacts{"pull/web": {Image: "i", Reason: "ErrImagePull"}},
	}}
	j := open(t, dir)
	if j.Intact {
		t.Error("a new journal calls itself intact")
	}
	check(t, j.Save("uid", want))
	check(t, j.Save("gone", want))
	check(t, j.Forget("gone"))
	check(t, j.SaveConfig([]byte("config")))
	check(t, j.Close())

	j = open(t, dir)
	if !j.Intact {
		t.Error("a journal that went on is not intact")
	}
	all, err := j.All()
	check(t, err)
	if len(all) != 1 || !reflect.DeepEqual(all["uid"], want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
	back, err := all["uid"].Decode()
	if err != nil || back.Name != "a" {
		t.Errorf("pod %v, %v", back, err)
	}
	if raw, err := j.Config(); err != nil || string(raw) != "config" {
		t.Errorf("config %q, %v", raw, err)
	}
	check(t, j.Close())
}

func TestDamage(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, FileName), []byte("nothing a database could be read from"), 0o600))
	j, damage, err := Open(store.Config{Path: filepath.Join(dir, FileName)})
	check(t, err)
	if damage == nil || j.Intact {
		t.Errorf("damage %v, intact %t", damage, j.Intact)
	}
	if _, err := os.Stat(damage.Aside); err != nil {
		t.Error(err)
	}
	check(t, j.Close())
}

func TestRecordWithoutPod(t *testing.T) {
	if p, err := (Record{Name: "orphan"}).Decode(); p != nil || err != nil {
		t.Errorf("got %v, %v", p, err)
	}
	if _, err := (Record{Name: "bad", Pod: []byte{0xff}}).Decode(); err == nil {
		t.Error("a damaged pod decodes")
	}
}
