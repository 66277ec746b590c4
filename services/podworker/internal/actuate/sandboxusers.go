// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/userns"
)

// sandboxUsers asks the runtime for the user namespace of a pod's newest sandbox, a ready
// one if there is one.
func sandboxUsers(runtime runtimeapi.RuntimeServiceClient) userns.Sandbox {
	return func(ctx context.Context, uid types.UID) (*runtimeapi.UserNamespace, error) {
		resp, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.PodUIDLabel: string(uid)}},
		})
		if err != nil || len(resp.GetItems()) == 0 {
			return nil, err
		}
		newest := slices.MaxFunc(resp.GetItems(), func(a, b *runtimeapi.PodSandbox) int {
			return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt())) // ready is the lesser state
		})
		status, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: newest.GetId()})
		if err != nil {
			return nil, err
		}
		users := status.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
		if len(users.GetUids()) == 0 || len(users.GetGids()) == 0 {
			return nil, fmt.Errorf("the runtime does not report the user namespace of sandbox %s", newest.GetId())
		}
		return users, nil
	}
}
