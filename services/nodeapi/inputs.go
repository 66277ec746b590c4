// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// Config are the flags of nodeapi.
type Config struct {
	// NodeName is the name of the Node that reviews are about.
	NodeName string
	// LogDir is the folder of the node's logs; /var/log when empty.
	LogDir string
	// GetStreams: the verb get suffices for exec, attach, portForward and run by GET, with
	// which a WebSocket begins, as in the kubelet. Otherwise they need create, by any
	// method.
	GetStreams bool
}

// inputs are what config says about the node API itself.
type inputs struct {
	kubelet *feed.Replica[*kubeletconfig.Config]
	serving *feed.Replica[*configv1.Serving]
}

func newInputs(kit *service.Kit) (in inputs, err error) {
	if in.kubelet, err = service.Replica(kit, house.ConfigKubelet, kubeletconfig.Decode); err != nil {
		return in, err
	}
	kit.Configured(func() uint64 { return kubeletconfig.GenerationOf(in.conf()) })
	in.serving, err = service.Replica(kit, house.ConfigServing, feed.Whole[*configv1.Serving])
	return in, err
}

// conf is the configuration in force, nil while it is not known.
func (in inputs) conf() *kubeletconfig.Config {
	c, _ := in.kubelet.Get("kubelet")
	return c
}

// files are the configured files as config read them, nil while that is not known.
func (in inputs) files() *configv1.Serving {
	files, _ := in.serving.Get("node")
	return files
}
