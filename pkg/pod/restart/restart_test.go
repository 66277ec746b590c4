// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func rule(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

func TestDecide(t *testing.T) {
	const (
		in    = v1.ContainerRestartRuleOnExitCodesOpIn
		notIn = v1.ContainerRestartRuleOnExitCodesOpNotIn
		one   = v1.ContainerRestartRuleActionRestart
		all   = v1.ContainerRestartRuleActionRestartAllContainers
	)
	always, onFailure, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever
	tests := []struct {
		name     string
		pod      v1.RestartPolicy
		c        v1.Container
		kind     string // "", init, ephemeral
		deleting bool
		exits    []Exit
		want     Decision
	}{
		{name: "never ran", pod: v1.RestartPolicyNever, want: Again},
		{name: "never ran, deleting", pod: v1.RestartPolicyAlways, deleting: true, want: Stay},
		{name: "always, success", pod: v1.RestartPolicyAlways, exits: []Exit{{Code: 0}}, want: Again},
		{name: "always, deleting", pod: v1.RestartPolicyAlways, deleting: true, exits: []Exit{{Code: 1}}, want: Stay},
		{name: "default policy is always", exits: []Exit{{Code: 0}}, want: Again},
		{name: "on failure, success", pod: v1.RestartPolicyOnFailure, exits: []Exit{{Code: 0}, {Code: 1}}, want: Stay},
		{name: "on failure, failure", pod: v1.RestartPolicyOnFailure, exits: []Exit{{Code: 3}, {Code: 0}}, want: Again},
		{name: "never, failure", pod: v1.RestartPolicyNever, exits: []Exit{{Code: 3}}, want: Stay},
		{name: "container policy overrides never", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &onFailure}, exits: []Exit{{Code: 3}}, want: Again},
		{name: "container policy overrides always", pod: v1.RestartPolicyAlways, c: v1.Container{RestartPolicy: &never}, exits: []Exit{{Code: 3}}, want: Stay},
		{name: "rule restarts", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(one, in, 42)}}, exits: []Exit{{Code: 42}}, want: Again},
		{name: "rule does not match", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(one, in, 42)}}, exits: []Exit{{Code: 43}}, want: Stay},
		{name: "rule NotIn", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(one, notIn, 0, 1)}}, exits: []Exit{{Code: 2}}, want: Again},
		{name: "first rule wins", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(all, in, 7), rule(one, in, 7)}}, exits: []Exit{{Code: 7}}, want: AllAgain},
		{name: "kill to come skips rules", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(one, in, 137)}}, exits: []Exit{{Code: 137, Ahead: true}}, want: Stay},
		{name: "kill to come obeys policy", pod: v1.RestartPolicyNever, c: v1.Container{RestartPolicy: &always}, exits: []Exit{{Code: 137, Ahead: true}}, want: Again},
		{name: "init done", pod: v1.RestartPolicyAlways, kind: "init", exits: []Exit{{Code: 0}}, want: Stay},
		{name: "init failed", pod: v1.RestartPolicyAlways, kind: "init", exits: []Exit{{Code: 1}}, want: Again},
		{name: "init failed, never", pod: v1.RestartPolicyNever, kind: "init", exits: []Exit{{Code: 1}}, want: Stay},
		{name: "init done, rule restarts all", pod: v1.RestartPolicyNever, kind: "init", c: v1.Container{RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{rule(all, in, 0)}}, exits: []Exit{{Code: 0}}, want: AllAgain},
		{name: "sidecar done", pod: v1.RestartPolicyNever, kind: "init", c: v1.Container{RestartPolicy: &always}, exits: []Exit{{Code: 0}}, want: Again},
		{name: "ephemeral", pod: v1.RestartPolicyAlways, kind: "ephemeral", exits: []Exit{{Code: 1}}, want: Stay},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Name = "c"
			p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
			switch tt.kind {
			case "init":
				p.Spec.InitContainers = []v1.Container{tt.c}
			case "ephemeral":
				p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "c"}}}
			default:
				p.Spec.Containers = []v1.Container{tt.c}
			}
			if tt.deleting {
				p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
			}
			if got := Decide(p, &tt.c, tt.exits...); got != tt.want {
				t.Errorf("Decide = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMayRestartAll(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}}}
	if MayRestartAll(p) {
		t.Error("pod without rules may restart all")
	}
	p.Spec.InitContainers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	if !MayRestartAll(p) {
		t.Error("pod with a rule may not restart all")
	}
}

// A container that ends at once, again and again: the waits the kubelet shows.
func TestCrashLoop(t *testing.T) {
	p := CrashPolicy(0)
	now := time.Unix(1_000_000, 0)
	var b Backoff
	var waits []time.Duration
	for range 9 {
		failed := now
		due := p.Due(b, failed)
		waits = append(waits, due.Sub(failed))
		if due.After(failed) && !p.Holds(b, failed, due.Add(-time.Nanosecond)) {
			t.Fatalf("not held just before %v", due)
		}
		if p.Holds(b, failed, due) {
			t.Fatalf("held at %v", due)
		}
		now = due
		b = p.Next(b, failed, now)
	}
	want := []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300}
	for i, w := range want {
		if waits[i] != w*time.Second {
			t.Errorf("wait %d = %v, want %v", i, waits[i], w*time.Second)
		}
	}
	// Ten minutes of good behaviour: the next failure is the first again.
	failed := b.Updated.Add(600*time.Second + time.Nanosecond)
	if p.Holds(b, failed, failed) {
		t.Error("held after 600 s without a crash")
	}
	if got := p.Next(b, failed, failed).Delay; got != 10*time.Second {
		t.Errorf("delay after reset = %v", got)
	}
	if failed = b.Updated.Add(600 * time.Second); !p.Holds(b, failed, failed) {
		t.Error("not held at exactly 600 s")
	}
}

func TestPullBackoff(t *testing.T) {
	p := PullPolicy()
	now := time.Unix(1_000_000, 0)
	b := p.Next(Backoff{}, now, now)
	if got := p.Due(b, b.Updated); got != now.Add(10*time.Second) {
		t.Errorf("second pull due %v", got.Sub(now))
	}
}

func TestConfiguredCap(t *testing.T) {
	p := CrashPolicy(5 * time.Second)
	b := p.Next(Backoff{}, time.Unix(0, 0), time.Unix(0, 0))
	b = p.Next(b, time.Unix(1, 0), time.Unix(1, 0))
	if b.Delay != 5*time.Second {
		t.Errorf("delay = %v, want the cap", b.Delay)
	}
}

func TestFastCrashPolicy(t *testing.T) {
	p, now := FastCrashPolicy(0), time.Unix(1_000_000, 0)
	var b Backoff
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b = p.Next(b, now, now)
		if b.Delay != want*time.Second {
			t.Errorf("delay = %v, want %v", b.Delay, want*time.Second)
		}
		now = now.Add(b.Delay)
	}
	if got := FastCrashPolicy(5 * time.Minute); got.Base != time.Second || got.Max != 5*time.Minute {
		t.Errorf("with a cap: %+v", got)
	}
}

func TestBackoffSurvivesJSON(t *testing.T) {
	want := map[string]Backoff{"k": {Delay: 40 * time.Second, Updated: time.Unix(5, 7).UTC(), LastError: "x"}, "z": {}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]Backoff
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got["k"] != want["k"] || got["z"] != want["z"] {
		t.Errorf("got %+v from %s", got, raw)
	}
}

func TestKeys(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}
	c := &v1.Container{Name: "c", Image: "i"}
	before := CrashKey(p, c)
	c.Image = "j"
	if CrashKey(p, c) == before {
		t.Error("key does not depend on the image")
	}
}
