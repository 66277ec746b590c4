// SPDX-License-Identifier: Apache-2.0

package step

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestFactsDoNotGrow: what is known of a pod does not grow with the instances it has had,
// whether its container restarts or its sandbox dies, again and again.
func TestFactsDoNotGrow(t *testing.T) {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "app", "default", "uid-1"
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "img"}}
	w := newWorld(p)
	settle := func() {
		for range 12 {
			w.stepOnce()
			for key := range w.in.Flights {
				if err := w.end(key, nil); err != nil {
					t.Fatal(err)
				}
			}
			w.refresh()
			if w.plan.WakeAt.After(w.now) {
				w.now = w.plan.WakeAt
			}
		}
	}
	settle()
	made := len(w.used)
	for range 100 {
		c, err := w.newestOf("web")
		if err != nil {
			t.Fatal(err)
		}
		w.die(c.ID, 1)
		w.refresh()
		settle()
		w.act(Action{Kind: StopSandbox, ID: w.sandbox[0].ID})
		w.refresh()
		settle()
	}
	if n := len(w.used) - made; n < 200 {
		t.Fatalf("%d containers were made, not 200: nothing restarts", n)
	}
	for field, value := range reflect.ValueOf(w.in.Facts).Fields() {
		count(t, field.Name, value)
	}
}

// count fails for a map of more than a few entries in a value of facts.
func count(t *testing.T, name string, value reflect.Value) {
	t.Helper()
	switch value.Kind() {
	case reflect.Struct:
		for field, v := range value.Fields() {
			count(t, name+"."+field.Name, v)
		}
	case reflect.Map, reflect.Slice:
		if value.Len() > 10 {
			t.Errorf("%s has %d entries", name, value.Len())
		}
	}
}
