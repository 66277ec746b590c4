// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/dradriver"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// resourceSlices has three drivers: one that is there, one that goes, and one that was never
// seen. With the node's own credential, the slices of the last two are deleted, and those of
// the first are left alone though resource and status are killed, after which what is gone is
// found by a list.
func resourceSlices(e *env) {
	const patience = 3 * time.Minute // 30 s after a driver has gone, and after each start of resource
	there, goes := &dradriver.Driver{Name: e.ns + ".there.example"}, &dradriver.Driver{Name: e.ns + ".goes.example"}
	for _, d := range []*dradriver.Driver{there, goes} {
		if err := d.Start(e.n.Root); err != nil {
			e.Fatal(err)
		}
		e.Cleanup(d.Stop)
	}
	api := e.n.cp.Admin.ResourceV1().ResourceSlices()
	publish := func(driver string) {
		e.Helper()
		_, err := api.Create(e.Context(), nodeSlice(driver, e.n.Name), metav1.CreateOptions{})
		if err != nil {
			e.Fatal(err)
		}
	}
	ours := []string{there.Name, goes.Name, e.ns + ".never.example"}
	for _, driver := range ours {
		publish(driver)
	}
	left := func(what string, want ...string) {
		e.Helper()
		harness.Eventually(e, patience, what, func(ctx context.Context) error {
			all, err := api.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var have []string
			for i := range all.Items {
				if name := all.Items[i].Name; slices.Contains(ours, name) {
					have = append(have, name)
				}
			}
			if !slices.Equal(have, want) {
				return fmt.Errorf("%v", have)
			}
			return nil
		})
	}
	first, err := api.Get(e.Context(), there.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	harness.Eventually(e, patience, "the registration of the driver that goes", func(context.Context) error {
		if len(goes.Told()) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	// The look after its start finds drivers that were never seen. The node's first was before
	// this test, if the machine is slow.
	e.n.Kill(e, "resource")
	goes.Stop()
	left("the slices of the driver that is there", there.Name)
	e.n.Kill(e, "resource")
	e.n.Kill(e, "status")
	publish(goes.Name)
	left("what is left after kills", there.Name)
	if now, err := api.Get(e.Context(), there.Name, metav1.GetOptions{}); err != nil || now.UID != first.UID {
		e.Errorf("the slice of the driver that is there: %v, %v, was %v", now.GetUID(), err, first.UID)
	}
}

// nodeSlice is a slice of a node, with a device; its name is the driver's.
func nodeSlice(driver, node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "device"}},
		},
	}
}
