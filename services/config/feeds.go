// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// nodeItem is the key of the one item of config.credential and config.serving.
const nodeItem = "node"

// feeds are what config owns.
type feeds struct {
	pods *feed.Owner[*configv1.DesiredPod]
	// statuses of the API server's pods, apart: each write of status comes back here.
	statuses *feed.Owner[*configv1.Object]
	sources  *feed.Owner[*configv1.Source]
	objects  *feed.Owner[*configv1.Object]
	secrets  *feed.Owner[*configv1.Object]
	mirrors  *feed.Owner[*configv1.Object]
	kubelet  *feed.Owner[*configv1.KubeletConfig]
	events   *feed.Events
	// credential and serving hold private keys.
	credential *feed.Owner[*configv1.Credential]
	serving    *feed.Owner[*configv1.Serving]
}

func newFeeds(kit *service.Kit) feeds {
	return feeds{
		pods:     service.Owner(kit, house.ConfigPods),
		statuses: service.Owner(kit, house.ConfigStatuses),
		sources:  service.Owner(kit, house.ConfigSources),
		objects:  service.Owner(kit, house.ConfigObjects),
		secrets:  service.Owner(kit, house.ConfigSecrets),
		mirrors:  service.Owner(kit, house.ConfigMirrors),
		kubelet:  service.Owner(kit, house.ConfigKubelet),
		events:   kit.Events(),

		credential: service.Owner(kit, house.ConfigCredential),
		serving:    service.Owner(kit, house.ConfigServing),
	}
}
