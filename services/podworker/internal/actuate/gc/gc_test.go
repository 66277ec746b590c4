package gc

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ago(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }

// known and gone pods of the cases.
const known, gone = types.UID("known"), types.UID("gone")

func TestDecide(t *testing.T) {
	keepOne := Policy{MaxPerContainer: 1, MaxTotal: -1}
	dead := func(id string, p types.UID, minutes int) Container {
		return Container{ID: id, Name: "c", SandboxID: "s-" + id, Pod: p, Created: ago(minutes)}
	}
	for _, tc := range []struct {
		name     string
		facts    Facts
		complete bool
		policy   Policy
		want     Plan
	}{
		{"nothing", Facts{}, true, keepOne, Plan{}},
		{"one dead is kept", Facts{Containers: []Container{dead("a", known, 1)}}, true, keepOne, Plan{}},
		{"older dead go", Facts{Containers: []Container{dead("a", known, 1), dead("b", known, 2), dead("c", known, 3)}}, true, keepOne, Plan{Containers: []string{"c", "b"}}},
		{"running ones do not count", Facts{Containers: []Container{{ID: "r", Name: "c", Pod: known, Running: true, Created: ago(0)}, dead("a", known, 1)}}, true, keepOne, Plan{}},
		{"none is kept", Facts{Containers: []Container{dead("a", known, 1)}}, true, Policy{MaxPerContainer: 0, MaxTotal: -1}, Plan{Containers: []string{"a"}}},
		{"all are kept", Facts{Containers: []Container{dead("a", known, 1), dead("b", known, 2)}}, true, Policy{MaxPerContainer: -1, MaxTotal: -1}, Plan{}},
		{"too young", Facts{Containers: []Container{dead("a", known, 1), dead("b", known, 2)}}, true, Policy{MinAge: time.Hour, MaxPerContainer: 1, MaxTotal: -1}, Plan{}},
		{"unknown pod", Facts{Containers: []Container{dead("a", gone, 1)}}, true, keepOne, Plan{Containers: []string{"a"}}},
		{"unknown pod, sources incomplete", Facts{Containers: []Container{dead("a", gone, 1)}}, false, keepOne, Plan{}},
		{"unknown pod still runs", Facts{Containers: []Container{{ID: "r", Pod: gone, Running: true}}}, true, keepOne, Plan{}},
		{
			"total limit", Facts{Containers: []Container{
				{ID: "a", Name: "a", Pod: known, Created: ago(1)}, {ID: "b", Name: "b", Pod: known, Created: ago(2)}, {ID: "c", Name: "c", Pod: known, Created: ago(3)},
			}}, true, Policy{MaxPerContainer: 1, MaxTotal: 2}, Plan{Containers: []string{"c"}},
		},
		{"empty sandboxes but the newest", Facts{Sandboxes: []Sandbox{{ID: "1", Pod: known, Created: ago(3)}, {ID: "2", Pod: known, Created: ago(2)}, {ID: "3", Pod: known, Created: ago(1)}}}, true, keepOne, Plan{Sandboxes: []string{"1", "2"}}},
		{"ready and used sandboxes stay", Facts{
			Sandboxes:  []Sandbox{{ID: "s-a", Pod: known, Created: ago(3)}, {ID: "2", Pod: known, Ready: true, Created: ago(2)}, {ID: "3", Pod: known, Created: ago(1)}},
			Containers: []Container{dead("a", known, 3)},
		}, true, keepOne, Plan{}},
		{"sandbox of an unknown pod", Facts{Sandboxes: []Sandbox{{ID: "1", Pod: gone, Created: ago(3)}}}, true, keepOne, Plan{Sandboxes: []string{"1"}}},
		{"sandbox of an unknown pod, sources incomplete", Facts{Sandboxes: []Sandbox{{ID: "1", Pod: gone, Created: ago(3)}}}, false, keepOne, Plan{}},
		{"folders", Facts{LogDirs: []string{"ns_p_gone", "ns_p_known", "lost+found"}, PodDirs: []types.UID{gone, known}}, true, keepOne, Plan{LogDirs: []string{"ns_p_gone"}, PodDirs: []types.UID{gone}}},
		{"folders, sources incomplete", Facts{LogDirs: []string{"ns_p_gone"}, PodDirs: []types.UID{gone}}, false, keepOne, Plan{}},
		{"folders wait for the runtime", Facts{LogDirs: []string{"ns_p_gone"}, PodDirs: []types.UID{gone}, Sandboxes: []Sandbox{{ID: "1", Pod: gone, Ready: true}}}, true, keepOne, Plan{}},
		{"links", Facts{
			Links:      []Link{{"/l/1", "dead"}, {"/l/2", "runs"}, {"/l/3", ""}, {"/l/4", "nowhere"}},
			Containers: []Container{{ID: "dead", Name: "c", Pod: known}, {ID: "runs", Name: "c", Pod: known, Running: true}},
		}, true, keepOne, Plan{Links: []string{"/l/1", "/l/4"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.facts.Now, tc.facts.Complete, tc.facts.Pods = now, tc.complete, map[types.UID]bool{known: true}
			if got := Decide(tc.facts, tc.policy); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}
