// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// expand does what a resize controller does until it is the node's turn
// (KEP-1790), and sees the node do its part: it says that it goes on, and then that
// it is done.
func (e *env) expand(claim, pod, size string) {
	e.Helper()
	api := e.n.cp.Admin.CoreV1()
	patch := func(err error) {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
	}
	_, err := api.PersistentVolumes().Patch(e.Context(), "pv-"+e.ns, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"capacity":{"storage":%q}}}`, size), metav1.PatchOptions{})
	patch(err)
	_, err = api.PersistentVolumeClaims(e.ns).Patch(e.Context(), claim, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{
		"allocatedResources":{"storage":%q},"allocatedResourceStatuses":{"storage":"NodeResizePending"},
		"conditions":[{"type":"FileSystemResizePending","status":"True"}]}}`, size), metav1.PatchOptions{}, "status")
	patch(err)
	harness.Eventually(e, 3*time.Minute, "claim "+claim+" to have "+size, func(ctx context.Context) error {
		c, err := api.PersistentVolumeClaims(e.ns).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := c.Status.Capacity[corev1.ResourceStorage]; got.String() != size || len(c.Status.AllocatedResourceStatuses) > 0 || len(c.Status.Conditions) > 0 {
			return fmt.Errorf("it is %+v", c.Status)
		}
		return nil
	})
	for _, about := range []string{pod, claim} {
		e.awaitEvent(about, "FileSystemResizeSuccessful", usual, contains("pv-"+e.ns))
	}
}
