// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/access"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/certificate"
	"github.com/sextant-node/sextant/services/nodeapi/internal/health"
	"github.com/sextant-node/sextant/services/nodeapi/internal/listen"
	"github.com/sextant-node/sextant/services/nodeapi/internal/logs"
	"github.com/sextant-node/sextant/services/nodeapi/internal/measure"
	"github.com/sextant-node/sextant/services/nodeapi/internal/pages"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stream"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// Deps are what nodeapi runs on.
type Deps struct {
	Kit *service.Kit
	// Now is the clock of certificates and reviews; time.Now when nil.
	Now func() time.Time
	// Sockets are listening sockets that the process was started with. For their
	// addresses no new ones are opened.
	Sockets []*os.File
}

// New makes nodeapi; everything runs in the kit.
func New(cfg Config, deps Deps) error {
	kit, now := deps.Kit, deps.Now
	if now == nil {
		now = time.Now
	}
	in, inErr := newInputs(kit)
	configConn, configErr := kit.Dial(house.Config)
	broker, brokerErr := dial(kit.Paths.Broker())
	worker, workerErr := dial(kit.Paths.Socket(house.PodWorker))
	if err := errors.Join(inErr, configErr, brokerErr, workerErr); err != nil {
		return err
	}
	config, runtime := configv1.NewConfigServiceClient(configConn), runtimeapi.NewRuntimeServiceClient(broker)
	callers, wake := callerlog.New(kit.Log, kit.Metrics), signal.New()
	pods, podsErr := view.New(kit, callers)
	logged, logsErr := logs.New(kit, in.conf, cmp.Or(cfg.LogDir, "/var/log"), callers)
	measured, measureErr := measure.New(measure.Deps{
		Kit: kit, NodeName: cfg.NodeName, Conf: in.conf, Pods: pods, Runtime: runtime, Callers: callers, Started: now(),
	})
	certificates, certificateErr := certificate.New(certificate.Deps{
		Kit: kit, Config: config, Conf: in.conf, Files: in.files, Now: now, Changed: wake.Send,
	})
	if err := errors.Join(podsErr, logsErr, measureErr, certificateErr); err != nil {
		return err
	}
	checks, bounds := health.New(kit, in.conf, now), listen.NewMetrics(kit.Metrics)
	gate := auth.NewGate(auth.NewReviewer(config), now)
	l := &loop{
		cfg: cfg, kit: kit, in: in, gate: gate, certificates: certificates, wake: wake, beat: kit.Heart("listeners", time.Minute),
		ports: listen.New(listen.Deps{Sockets: deps.Sockets, Verified: gate.Certified, Metrics: bounds, Callers: callers, Log: kit.Log}),
		routes: routes{
			access: access.New(access.Deps{
				Conf: in.conf, Gate: gate, Registry: kit.Metrics, Refused: bounds.Refused, Callers: callers, Log: kit.Log,
			}),
			health: checks, measured: measured, pages: pages.New(kit, in.conf, pods), logs: logged,
			streams: stream.New(stream.Deps{
				Conf: in.conf, Pods: pods, Runtime: runtime, Worker: podworkerv1.NewPodWorkerServiceClient(worker),
				Registry: kit.Metrics, Log: kit.Log,
			}),
		},
	}
	changed := func([]string) {
		wake.Send()
		certificates.Look()
	}
	in.kubelet.Watch(changed)
	in.serving.Watch(changed)
	if cfg.GetStreams {
		kit.Log.Warn("exec, attach, port-forward and run by GET need only the verb get, as in the kubelet")
	}
	kit.Go("certificate", certificates.Run)
	kit.Go("listeners", l.run)
	kit.Go("neighbours", checks.Run)
	kit.Waiting(house.ConfigKubelet.Name)
	return nil
}

// dial makes a connection for calls that take as long as they need.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Timeout: listen.StreamTimeout})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	return conn, nil
}
