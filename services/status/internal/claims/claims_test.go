// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// pending is a claim in the middle of an expansion, as the controller leaves it.
const pending = `
metadata: {namespace: ns, name: data, uid: u}
status:
  phase: Bound
  capacity: {storage: 1Gi}
  allocatedResources: {storage: 2Gi}
  allocatedResourceStatuses: {storage: NodeResizePending}
  conditions:
  - {type: FileSystemResizePending, status: "True"}
  - {type: ModifyingVolume, status: "True"}
`

func item(state volumev1.ExpansionState) *volumev1.ClaimExpansion {
	return &volumev1.ClaimExpansion{Namespace: "ns", Name: "data", Uid: "u", ResourceVersion: "7", State: state, Size: "2Gi", Error: "no room"}
}

// TestBody applies each patch as the API server does.
func TestBody(t *testing.T) {
	for state, want := range map[volumev1.ExpansionState]string{
		volumev1.ExpansionState_EXPANSION_STATE_IN_PROGRESS: `1Gi NodeResizeInProgress FileSystemResizePending ModifyingVolume at 7`,
		volumev1.ExpansionState_EXPANSION_STATE_DONE:        `2Gi  ModifyingVolume at 7`,
		volumev1.ExpansionState_EXPANSION_STATE_FAILED:      `1Gi NodeResizePending NodeResizeError: failed to expand pvc with no room FileSystemResizePending ModifyingVolume at `,
		volumev1.ExpansionState_EXPANSION_STATE_INFEASIBLE:  `1Gi NodeResizeInfeasible NodeResizeError: failed to expand pvc with no room FileSystemResizePending ModifyingVolume at `,
	} {
		before, err := yaml.YAMLToJSON([]byte(pending))
		if err != nil {
			t.Fatal(err)
		}
		body, err := Body(item(state), time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		merged, err := strategicpatch.StrategicMergePatch(before, body, &v1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatalf("%s: %v\n%s", state, err, body)
		}
		var c v1.PersistentVolumeClaim
		if err := json.Unmarshal(merged, &c); err != nil {
			t.Fatal(err)
		}
		size := c.Status.Capacity[v1.ResourceStorage]
		got := size.String() + " " + string(c.Status.AllocatedResourceStatuses[v1.ResourceStorage])
		for _, condition := range c.Status.Conditions {
			got += " " + string(condition.Type)
			if condition.Message != "" {
				got += ": " + condition.Message
			}
		}
		if got += " at " + c.ResourceVersion; got != want {
			t.Errorf("%s:\n%s, want\n%s", state, got, want)
		}
		if c.UID != "u" {
			t.Errorf("%s: of claim %q", state, c.UID)
		}
	}
}

// server answers patches.
type server struct {
	bodies []string
	answer error
}

func (s *server) PatchClaimStatus(_ context.Context, _, _ string, body []byte) error {
	s.bodies = append(s.bodies, string(body))
	return s.answer
}

func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &server{}
		var wanted []*volumev1.ClaimExpansion
		w := New(Deps{API: api, Wanted: func() []*volumev1.ClaimExpansion { return wanted }, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("claims: %v", err)
			}
		}()
		sent := func(when string, want int) {
			t.Helper()
			w.Look()
			<-time.After(time.Minute)
			synctest.Wait()
			if len(api.bodies) != want {
				t.Errorf("%s: %d requests, want %d", when, len(api.bodies), want)
			}
			api.bodies = nil
		}
		sent("nothing is wanted", 0)
		wanted = []*volumev1.ClaimExpansion{item(volumev1.ExpansionState_EXPANSION_STATE_IN_PROGRESS)}
		sent("the first", 1)
		sent("the same", 0)
		api.answer = apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("changed"))
		wanted = []*volumev1.ClaimExpansion{item(volumev1.ExpansionState_EXPANSION_STATE_DONE)}
		sent("it has changed: volume judges it anew", 1)
		api.answer = apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{}, "data", "no backend", 0, true)
		wanted = []*volumev1.ClaimExpansion{item(volumev1.ExpansionState_EXPANSION_STATE_FAILED)}
		w.Look()
		synctest.Wait()
		api.answer = nil
		sent("a proxy's 404 is no answer", 2)
		api.answer = nil
		wanted[0] = item(volumev1.ExpansionState_EXPANSION_STATE_DONE)
		wanted[0].ResourceVersion = "8"
		sent("anew", 1)
		wanted = nil
		sent("nothing is wanted any more", 0)
		wanted = []*volumev1.ClaimExpansion{item(volumev1.ExpansionState_EXPANSION_STATE_IN_PROGRESS)}
		sent("the next expansion", 1)
		api.answer = errors.New("connection refused")
		wanted = []*volumev1.ClaimExpansion{item(volumev1.ExpansionState_EXPANSION_STATE_FAILED)}
		w.Look()
		<-time.After(time.Minute)
		synctest.Wait()
		if n := len(api.bodies); n < 5 || n > 30 {
			t.Errorf("%d tries in a minute", n)
		}
		stop()
		synctest.Wait()
	})
}
