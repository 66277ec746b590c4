// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/services/resource/internal/dra"
)

// TestAPodThatWaitsForAnOldClaim is tried again as soon as the claim that had the name is
// gone, also where another claim of the pod that left cannot be unprepared.
func TestAPodThatWaitsForAnOldClaim(t *testing.T) {
	const gpu = `{\"ClaimUID\":\"u1\",\"ClaimName\":\"gpu\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{}},\"DriverState\":{}}`
	const nic = `{\"ClaimUID\":\"u3\",\"ClaimName\":\"nic\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{}},\"DriverState\":{\"a.example\":{\"Devices\":null}}}`
	for name, claims := range map[string]string{"alone": gpu, "beside one whose driver is away": gpu + "," + nic} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.stop()
				text := `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[` + claims + `]}","Checksum":SUM}`
				if err := os.WriteFile(r.file(), []byte(summed(t, text)), 0o600); err != nil {
					t.Fatal(err)
				}
				r.start()
				r.claim("gpu", "u2", "", "p2")
				p2 := pod("p2", "gpu")
				r.refused(p2, "prepare dynamic resources: old ResourceClaim with same name gpu and different UID u1 still exists (previous pod force-deleted?!)")
				<-time.After(time.Minute) // the pauses have grown
				synctest.Wait()
				left := time.Now()
				if _, err := r.m.Leave("p1"); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if err := r.m.Why("p2"); err != nil || time.Now() != left {
					t.Errorf("once the old claim is gone: %v", err)
				}
			})
		})
	}
}

// TestPauses: what fails is tried again within the time in which a kubelet does.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.claim("gpu", "u1", "a.example", "p1")
		p := pod("p1", "gpu")
		r.refused(p, "prepare dynamic resources: DRA driver a.example is not registered")
		<-time.After(5 * time.Minute)
		tries := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.done)
		}
		before := tries()
		<-time.After(time.Minute)
		if got := tries() - before; got < 6 || got > 7 {
			t.Errorf("%d tries in a minute", got)
		}
		if err := r.m.Why("p1"); err == nil || errors.Is(err, dra.ErrPending) {
			t.Error(err)
		}
	})
}
