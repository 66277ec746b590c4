// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestOffline takes the power from a node and starts it again, once without an API
// server and once with it. The pods that ran come back, with all their volumes; what
// was over stays over; and what was deleted meanwhile goes when the API server says
// so: at once where it runs, and without having been started where it says so first.
func TestOffline(t *testing.T) {
	cp := harness.StartControlPlane(t)
	n := &node{kind: "offline", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t), seen: observe(t, cp)}
	n.Node = harness.StartNode(t, harness.NodeOptions{ControlPlane: cp})
	n.paths = house.Paths{Run: n.Run, State: n.State}
	e := newEnv(t, n)
	o := e.outage()

	n.PowerCut(t)
	o.deletions("first")
	cp.Stop(t)
	away := true
	defer func() {
		if away { // the tests after this one need it
			cp.Resume(t)
		}
	}()
	began := time.Now()
	n.Runtime.Restart(t)
	var up sync.WaitGroup
	up.Go(func() {
		// Up waits for the API server; the pods do not.
		out, err := n.TryUp(t.Context(), "--timeout=5s")
		t.Logf("up without an API server: %v\n%s", err, out)
	})
	o.backOffline(began)
	up.Wait()
	known := o.made("")
	cp.Resume(t)
	away = false
	back := time.Now()
	n.seen = observe(t, cp) // the former one is slow to notice that the API server is back
	o.honoured("first", known, back)
	o.back()

	known = o.made("second")
	n.PowerCut(t)
	o.deletions("second")
	n.Runtime.Restart(t)
	began = time.Now()
	n.Up(t)
	o.honoured("second", known, began)
	for key, list := range o.made("second") { // those that are left are removed one after the other
		if slices.ContainsFunc(list, func(id string) bool { return !slices.Contains(known[key], id) }) {
			t.Errorf("a pod that was deleted before the start was started: %s had %v and has %v", key, known[key], list)
		}
	}
	o.back()
	e.removeStatic()
}

// outage is what a node had to run when it lost its power.
type outage struct {
	*env
	// runs come back; over do not.
	runs, over []string
	// uids are those of the pods that are deleted, by name.
	uids map[string]types.UID
}

// outage makes pods that must come back, pods that must not, and some that are
// deleted later.
func (e *env) outage() *outage {
	e.Helper()
	e.objects()
	o := &outage{env: e, runs: e.five(), over: []string{"succeeded", "never"}, uids: map[string]types.UID{}}
	add := func(name string, change func(*corev1.Pod), args ...string) {
		pod := e.pod(name, args...)
		change(pod)
		e.create(pod)
	}
	never := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
	nothing := func(*corev1.Pod) {}
	add("succeeded", never, "echo", "done")
	add("never", never)
	add("volumes", everyVolume)
	add("steps", sidecars)
	o.runs = append(o.runs, "volumes", "steps")
	for _, when := range []string{"first", "second"} {
		for _, how := range []string{"deleted", "forced", "replaced"} {
			add(when+"-"+how, nothing, "--ignore-term")
		}
	}
	for _, when := range []string{"first", "second"} {
		for _, how := range []string{"deleted", "forced", "replaced"} {
			name := when + "-" + how
			o.uids[name] = e.awaitRunning(name, usual).UID
		}
	}
	for _, name := range append([]string{"never"}, o.runs...) {
		e.awaitRunning(name, usual)
	}
	e.await("succeeded", usual, "to be over", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodSucceeded {
			return errors.New(brief(pod))
		}
		return nil
	})
	return o
}

// deletions deletes three pods of the node that is away: as a user does, by force,
// and by force with another of the name after it, as a StatefulSet has it.
func (o *outage) deletions(when string) {
	o.Helper()
	o.delete(when+"-deleted", 2)
	o.delete(when+"-forced", 0)
	o.delete(when+"-replaced", 0)
	o.awaitGone(when+"-replaced", usual)
	o.create(o.pod(when + "-replaced"))
}

// made are the containers, by "pod-uid/container", of the pods whose names begin so.
func (o *outage) made(prefix string) map[string][]string {
	o.Helper()
	found := map[string][]string{}
	for name, uid := range o.uids {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		list, err := o.n.instances(o.Context(), o.ns)
		if err != nil {
			o.Fatal(err)
		}
		for key, instances := range list {
			if strings.HasPrefix(key, string(uid)+"/") {
				for _, i := range instances {
					found[key] = append(found[key], i.id)
				}
			}
		}
	}
	return found
}

// backOffline waits until everything runs again without an API server, and looks into
// the pod with volumes.
func (o *outage) backOffline(began time.Time) {
	o.Helper()
	var all []harness.PodRow
	harness.Eventually(o, usual, "the pods to come back without an API server", func(ctx context.Context) (err error) {
		if all, err = o.n.Pods(ctx); err != nil {
			return err
		}
		rows := map[string]harness.PodRow{}
		for _, row := range all {
			rows[row.Name] = row
		}
		for _, name := range o.runs {
			if row := rows[name]; row.Phase != "Running" || !whole(row.Ready) || row.Restarts == 0 {
				err = errors.Join(err, fmt.Errorf("%s: %+v", name, row))
			}
		}
		for _, name := range o.over {
			if row := rows[name]; row.Ready != "0/1" {
				err = errors.Join(err, fmt.Errorf("%s: %+v", name, row))
			}
		}
		return err
	})
	o.Logf("%d pods run again %.2f s after the start of the runtime, without an API server", len(o.runs), time.Since(began).Seconds())
	for _, row := range all {
		if row.Name == "volumes" {
			o.contents(row)
		}
	}
}

// whole reports whether "2/2" is all of them.
func whole(ready string) bool {
	have, want, _ := strings.Cut(ready, "/")
	return have == want && have != ""
}

// contents looks at what a pod has in its volumes.
func (o *outage) contents(row harness.PodRow) {
	o.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: row.Name}, Status: corev1.PodStatus{PodIP: row.IP}}
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	for path, check := range map[string]func(string) error{
		"/config/greeting": is("hello"), "/secret/password": is("swordfish"), "/info/name": is("volumes"), token: contains("."),
	} {
		o.file(pod, path, usual, check)
	}
}

// honoured waits until the deleted pods have ended and the new one of the name runs.
// Nothing more was started of the deleted ones than known.
func (o *outage) honoured(when string, known map[string][]string, began time.Time) {
	o.Helper()
	o.awaitGone(when+"-deleted", usual)
	for name, uid := range o.uids {
		if strings.HasPrefix(name, when) {
			o.awaitNoInstance(string(uid), usual)
		}
	}
	o.Logf("deletions were honoured %.2f s after node and API server were both there", time.Since(began).Seconds())
	pod := o.awaitRunning(when+"-replaced", usual)
	if pod.UID == o.uids[when+"-replaced"] {
		o.Errorf("%s is the deleted pod", pod.Name)
	}
	for key, list := range o.made(when) {
		for _, id := range list {
			if !slices.Contains(known[key], id) {
				o.Errorf("container %s of a deleted pod was made after the API server was there: %s", id, key)
			}
		}
	}
}

// back waits until the API server knows what came back and what is over.
func (o *outage) back() {
	o.Helper()
	for _, name := range o.runs {
		pod := o.awaitRunning(name, usual)
		for _, c := range pod.Status.ContainerStatuses {
			if c.LastTerminationState.Terminated == nil {
				o.Errorf("%s/%s does not tell how it ended: %s", name, c.Name, brief(pod))
			}
		}
	}
	for name, phase := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "never": corev1.PodFailed} {
		o.await(name, usual, "to be over", func(pod *corev1.Pod) error {
			if pod.Status.Phase != phase {
				return errors.New(brief(pod))
			}
			return nil
		})
		if made, err := o.n.containers(o.Context(), o.ns); err != nil {
			o.Error(err)
		} else {
			for _, c := range made {
				if c.GetLabels()["io.kubernetes.pod.name"] == name && c.GetMetadata().GetAttempt() > 0 {
					o.Errorf("%s was over and was started again: %s", name, c.GetId())
				}
			}
		}
	}
}
