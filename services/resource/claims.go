// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
)

// sweepPeriod is how often claims are looked for whose pods are gone (kubelet: 60 s).
const sweepPeriod = time.Minute

// claims has the devices of resource claims prepared for the pods in the ledger, and shows
// in their items what their containers get.
type claims struct {
	manager *dra.Manager
	ledger  *ledger
	desired *feed.Replica[struct{}] // config.pods: which UIDs are expected
	wake    signal.Signal
}

func newClaims(rootDir string, kit *service.Kit, ledger *ledger, tree *tree, node *node, metrics *metrics, wake signal.Signal, now func() time.Time) (*claims, error) {
	boot, err := service.BootID()
	if err != nil {
		return nil, err
	}
	c := &claims{ledger: ledger, wake: wake}
	c.manager, err = dra.New(dra.Config{
		Store: ledger.file, File: filepath.Join(rootDir, dra.Name), Boot: boot,
		Claim: node.claim, Changed: c.changed, DriversChanged: wake.Send, Now: now, Log: kit.Log,
		Observe: func(operation string, failed bool, took time.Duration) {
			metrics.claimOperations.WithLabelValues(operation, strconv.FormatBool(failed)).Observe(took.Seconds())
		},
		ObserveCall: func(driver, method, code string, took time.Duration) {
			metrics.driverCalls.WithLabelValues(driver, method, code).Observe(took.Seconds())
		},
	})
	if err != nil {
		return nil, err
	}
	if c.desired, err = service.Keys(kit, house.ConfigPods.Feed, service.Unhurried); err != nil {
		return nil, err
	}
	node.objects.Watch(func(keys []string) {
		if concern(keys, "ResourceClaim/") {
			c.manager.Look()
		}
	})
	kit.Metrics.MustRegister(claimsInUse{c.manager})
	ctx := context.Background()
	ledger.each(func(h *held) {
		if !h.Releasing {
			err = errors.Join(err, c.manager.Keep(h.pod, func() bool { return len(h.Cgroup) > 0 && tree.of(h.Driver).Begun(h.Cgroup) }))
		}
		c.show(ctx, h)
	})
	if err != nil {
		return nil, err
	}
	kit.Go("claims", c.run)
	return c, nil
}

// registration is how DRA drivers register.
func (c *claims) registration() (kind string, drivers pluginregistration.Type) {
	all := c.manager.Drivers()
	return registration.DRAPlugin, pluginregistration.Type{Register: all.Register, Unregister: all.Unregister}
}

// present are the drivers that the node has, as resource.node has them; nil while drivers
// have time to register.
func (c *claims) present() *resourcev1.ClaimDrivers {
	present, known := c.manager.Drivers().Present()
	if !known {
		return nil
	}
	return &resourcev1.ClaimDrivers{Present: present}
}

// run has drivers called until ctx ends.
func (c *claims) run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.manager.Run(ctx)
	}()
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			c.sweep()
		}
	}
	<-ended
	return nil
}

// expects reports whether config.pods has a pod.
func (c *claims) expects(uid string) bool {
	_, ok := c.desired.Get(uid)
	return ok
}

// known reports whether config.pods has all pods that are wanted.
func (c *claims) known() bool {
	_, complete, _, _ := c.desired.State()
	return complete
}

// unexpected reports whether it is known that config.pods has a pod no more.
func (c *claims) unexpected(uid string) bool {
	return c.known() && !c.expects(uid)
}

// sweep has claims unprepared that a kubelet left to pods that no agent has any more.
func (c *claims) sweep() {
	if !c.known() {
		return
	}
	c.manager.Sweep(func(uid string) bool { return c.expects(uid) || c.ledger.get(uid) != nil })
}

// changed shows what has become of a pod's claims; it may wait for the pod's turn.
func (c *claims) changed(uid string) {
	defer c.ledger.turn(uid)()
	h := c.ledger.get(uid)
	switch {
	case h == nil:
	case h.Releasing:
		c.wake.Send()
	default:
		c.show(context.Background(), h)
	}
}

// ask has the claims of a pod prepared, and returns why they are not yet, or nil. Callers
// have the pod's turn. The pod's status may name more claims than when it was held first.
func (c *claims) ask(ctx context.Context, h *held, p *v1.Pod, running bool) error {
	if !dra.Uses(p) {
		return nil
	}
	next := h.pod.DeepCopy()
	next.Status.ResourceClaimStatuses, next.Status.ExtendedResourceClaimStatus = p.Status.ResourceClaimStatuses, p.Status.ExtendedResourceClaimStatus
	record := h.allocation
	var err error
	if record.Pod, err = next.Marshal(); err != nil {
		return err
	}
	if string(record.Pod) != string(h.Pod) {
		if err := c.ledger.put(h, record); err != nil {
			return err
		}
		c.ledger.set(func() { h.pod = next })
	}
	err = c.manager.Ask(ctx, h.pod, running)
	c.note(h)
	if running {
		return nil
	}
	return err
}

// note takes up what the containers of a pod get by its claims; callers have its turn.
func (c *claims) note(h *held) {
	if !dra.Uses(h.pod) {
		return
	}
	unready := ""
	if err := c.manager.Why(string(h.pod.UID)); err != nil {
		unready = err.Error()
	}
	devices, health := map[string][]string{}, []*resourcev1.DeviceHealth(nil)
	for _, list := range [][]v1.Container{h.pod.Spec.InitContainers, h.pod.Spec.Containers} {
		for i := range list {
			if ids := c.manager.Devices(h.pod, &list[i]); len(ids) > 0 {
				devices[list[i].Name] = ids
			}
		}
	}
	for i := range h.pod.Spec.Containers {
		container := &h.pod.Spec.Containers[i]
		for _, d := range c.manager.Health(h.pod, container) {
			health = append(health, &resourcev1.DeviceHealth{
				Container: container.Name, Resource: d.Resource, Id: d.ID, Health: string(d.State), Message: d.Message,
			})
		}
	}
	c.ledger.set(func() { h.unready, h.cdi, h.health = unready, devices, health })
}

// show publishes what has become of a pod's claims; callers have its turn.
func (c *claims) show(ctx context.Context, h *held) {
	c.note(h)
	c.ledger.show(ctx, h)
}

// leave has the claims of a pod unprepared that no other pod uses; an error while they are
// not.
func (c *claims) leave(uid string) error {
	switch done, err := c.manager.Leave(uid); {
	case done:
		return nil
	case err != nil:
		return err
	}
	return errUnpreparing
}

// errUnpreparing is the error of a release that drivers are at work on.
var errUnpreparing = errors.New("the devices of its resource claims are being unprepared")

// claimsInUse is counted when it is asked for.
type claimsInUse struct{ manager *dra.Manager }

var claimsInUseDesc = prometheus.NewDesc("dra_resource_claims_in_use",
	"Resource claims that pods of the node use, by driver; all of them for <any>.", []string{"driver_name"}, nil)

// Describe implements prometheus.Collector.
func (claimsInUse) Describe(to chan<- *prometheus.Desc) { to <- claimsInUseDesc }

// Collect implements prometheus.Collector.
func (c claimsInUse) Collect(to chan<- prometheus.Metric) {
	byDriver, all := c.manager.InUse()
	byDriver["<any>"] = all
	for name, n := range byDriver {
		to <- prometheus.MustNewConstMetric(claimsInUseDesc, prometheus.GaugeValue, float64(n), name)
	}
}
