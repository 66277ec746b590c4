// SPDX-License-Identifier: Apache-2.0

package crisuite_test

import (
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/crisuite"
	"github.com/sextant-node/sextant/test/fakecri"
)

func TestFake(t *testing.T) {
	for _, flavor := range []fakecri.Flavor{fakecri.Containerd2, fakecri.Containerd16} {
		t.Run(flavor.String(), func(t *testing.T) {
			t.Parallel()
			rt := fakecri.Start(t, fakecri.Config{Flavor: flavor})
			login := &runtimeapi.AuthConfig{Username: "user", Password: "secret"}
			rt.Provide(fakecri.Image{Ref: "fake/private:1", Login: login})
			modern := flavor != fakecri.Containerd16
			crisuite.Run(t, crisuite.Target{
				Conn:     func(t testing.TB) grpc.ClientConnInterface { return rt.Conn(t) },
				Images:   crisuite.Images{Shell: "fake/busybox:1", Spare: "fake/spare:1", Missing: "fake/missing:1", Private: "fake/private:1", Login: login},
				Features: crisuite.Features{Events: modern, WholeEvents: modern, EveryListener: modern, RuntimeConfig: modern, ImageID: modern, Streams: modern},
				Linger: func(t testing.TB, method, pod string) (caught, release func()) {
					stall := rt.Linger(fakecri.Match{Method: method, Name: pod})
					return func() {
						if err := stall.Wait(t.Context(), 1); err != nil {
							t.Error(err)
						}
					}, stall.Release
				},
				LeaveTask: func(_ testing.TB, id string) { rt.LeaveTask(id) },
				Interrupt: func(_ testing.TB, during func()) { rt.Down(); during(); rt.Up() },
			})
		})
	}
}
