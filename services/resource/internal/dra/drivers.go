// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
)

// callLimit bounds a call of a driver (kubelet: 45 s).
const callLimit = 45 * time.Second

// reconnectMost bounds the pause before a driver that went away is dialled again.
const reconnectMost = 5 * time.Second

// services of drivers that the node can call, as registration names them.
var services = []string{drav1.DRAPluginService, drav1beta1.DRAPluginService}

// ObserveCall takes in a call of a driver: method by its full name, and how it ended.
type ObserveCall func(driver, method, code string, took time.Duration)

// Drivers are the DRA drivers that registered. A driver may have several instances, as it
// has while it is updated; the newest that is connected is called, else the newest. Make
// it with NewDrivers.
type Drivers struct {
	observe ObserveCall
	now     func() time.Time
	// changed is called after a driver came, went, connected or lost its connection.
	changed func(name string)
	// health is what the drivers say of their devices.
	health *healths

	mu    sync.Mutex
	known map[string][]*instance
	// since is when each driver that was known had its last connection lost.
	since map[string]time.Time
	began time.Time
	// watching are the goroutines that follow connections.
	watching sync.WaitGroup
}

// instance is one registered plugin of a driver.
type instance struct {
	driver, endpoint, service string
	socket                    string // where it registers
	conn                      *grpc.ClientConn
	cancel                    context.CancelFunc
	connected                 bool // guarded by Drivers.mu
}

// NewDrivers makes a table of drivers without any.
func NewDrivers(observe ObserveCall, changed func(name string), health *healths, now func() time.Time) *Drivers {
	return &Drivers{observe: observe, changed: changed, health: health, now: now, known: map[string][]*instance{}, since: map[string]time.Time{}, began: now()}
}

// chosen is the service a plugin is called by: the first in its own order that the node
// knows (KEP-4381). Errors have the kubelet's words.
func chosen(driver, endpoint string, supported []string) (string, error) {
	err := errors.New("empty list of supported gRPC services (aka supported versions)")
	if len(supported) > 0 {
		if i := slices.IndexFunc(supported, func(s string) bool { return slices.Contains(services, s) }); i >= 0 {
			return supported[i], nil
		}
		err = fmt.Errorf("none of services supported by the plugin (%q) are supported by the kubelet (%q)", supported, services)
	}
	return "", fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %w", driver, endpoint, err)
}

// Register takes in a plugin of a driver. It is connected at once, and again when the
// connection is lost. One that registered at the same socket before is replaced by it.
func (d *Drivers) Register(_ context.Context, p pluginregistration.Plugin) error {
	driver, endpoint := p.Name, p.Endpoint
	service, err := chosen(driver, endpoint, p.Versions)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.known[driver], func(i *instance) bool { return i.endpoint == endpoint && i.socket != p.Socket }) {
		return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", endpoint, driver)
	}
	d.drop(p)
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = reconnectMost
	i := &instance{driver: driver, endpoint: endpoint, service: service, socket: p.Socket}
	i.conn, err = grpc.NewClient("unix:"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: reconnectMost}),
		grpc.WithChainUnaryInterceptor(d.measure(driver)))
	if err != nil {
		return fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w", driver, endpoint, err)
	}
	d.known[driver] = append(d.known[driver], i)
	if _, ok := d.since[driver]; !ok {
		d.since[driver] = d.now()
	}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	d.watching.Go(func() { d.watch(ctx, i) })
	return nil
}

// Unregister lets go of a plugin whose registration socket went.
func (d *Drivers) Unregister(p pluginregistration.Plugin) {
	d.mu.Lock()
	d.drop(p)
	d.mu.Unlock()
	d.changed(p.Name)
}

// drop removes what registered at a plugin's socket; callers hold Drivers.mu.
func (d *Drivers) drop(p pluginregistration.Plugin) {
	driver := p.Name
	list := d.known[driver]
	at := slices.IndexFunc(list, func(i *instance) bool { return i.socket == p.Socket })
	if at < 0 {
		return
	}
	i := list[at]
	if d.known[driver] = slices.Delete(list, at, at+1); len(d.known[driver]) == 0 {
		delete(d.known, driver)
	}
	i.cancel()
	if i.connected {
		i.connected = false
		d.lost(driver)
	}
}

// lost notes when a driver lost its last connection; callers hold Drivers.mu.
func (d *Drivers) lost(driver string) {
	if !d.usable(driver) {
		d.since[driver] = d.now()
	}
}

func (d *Drivers) usable(driver string) bool {
	return slices.ContainsFunc(d.known[driver], func(i *instance) bool { return i.connected })
}

// watch keeps an instance connected, and notes whether it is, until ctx ends.
func (d *Drivers) watch(ctx context.Context, i *instance) {
	defer i.conn.Close() //nolint:errcheck // nothing to lose
	unfollow := func() {}
	defer func() { unfollow() }()
	for {
		state := i.conn.GetState()
		if state == connectivity.Idle {
			i.conn.Connect()
		}
		d.mu.Lock()
		moved := ctx.Err() == nil && i.connected != (state == connectivity.Ready)
		if moved {
			if i.connected = !i.connected; !i.connected {
				d.lost(i.driver)
			}
		}
		d.mu.Unlock()
		if moved {
			d.changed(i.driver)
			unfollow()
			unfollow = func() {}
		}
		if moved && state == connectivity.Ready {
			unfollow = d.follow(ctx, i)
		}
		if !i.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// healthPause is between the end of a stream of reports and the next (kubelet: the same).
const healthPause = 5 * time.Second

// follow takes in what an instance says of its devices, until end is called, which waits
// for that.
func (d *Drivers) follow(ctx context.Context, i *instance) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.listen(ctx, i)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// listen takes in one stream of reports after the other, until ctx ends. A driver that does
// not report is not asked again before it connects again. (A kubelet asks every 5 s.)
func (d *Drivers) listen(ctx context.Context, i *instance) {
	timer := time.NewTimer(healthPause)
	defer timer.Stop()
	for {
		err := d.reports(ctx, i)
		d.health.drop(i)
		if ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		timer.Reset(healthPause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// reports takes in one stream of reports.
func (d *Drivers) reports(ctx context.Context, i *instance) error {
	stream, err := drahealth.NewDRAResourceHealthClient(i.conn).NodeWatchResources(ctx, &drahealth.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		d.health.take(i, list.GetDevices())
	}
}

// Close lets go of every plugin; it does not count as their end.
func (d *Drivers) Close() {
	d.mu.Lock()
	for _, list := range d.known {
		for _, i := range list {
			i.cancel()
		}
	}
	d.mu.Unlock()
	d.watching.Wait()
}

// absence is how long a driver may be away before it counts as gone (kubelet: 30 s). After
// a start all have as long to register.
const absence = 30 * time.Second

// Present are the drivers that are connected, or were less than absence ago, sorted; false
// before the time to register is over.
func (d *Drivers) Present() ([]string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	present := []string{}
	for driver, since := range d.since {
		switch {
		case d.usable(driver) || now.Sub(since) < absence:
			present = append(present, driver)
		case len(d.known[driver]) == 0:
			delete(d.since, driver)
		}
	}
	slices.Sort(present)
	return present, now.Sub(d.began) >= absence
}

// get finds the instance of a driver to call.
func (d *Drivers) get(driver string) (*instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.known[driver]
	switch {
	case driver == "":
		return nil, errors.New("DRA driver name is empty")
	case len(list) == 0:
		return nil, fmt.Errorf("DRA driver %s is not registered", driver)
	}
	for _, i := range slices.Backward(list) {
		if i.connected {
			return i, nil
		}
	}
	return list[len(list)-1], nil
}

func (d *Drivers) measure(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := d.now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		d.observe(driver, method, status.Code(err).String(), d.now().Sub(began))
		return err
	}
}

func wireClaims(claims []*Claim) []*drav1.Claim {
	var all []*drav1.Claim
	for _, c := range claims {
		all = append(all, &drav1.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
	}
	return all
}

// prepare calls NodePrepareResources for claims of one driver.
func (i *instance) prepare(ctx context.Context, claims []*Claim) (*drav1.NodePrepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req := &drav1.NodePrepareResourcesRequest{Claims: wireClaims(claims)}
	if i.service == drav1beta1.DRAPluginService {
		return drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(i.conn)}.NodePrepareResources(ctx, req)
	}
	return drav1.NewDRAPluginClient(i.conn).NodePrepareResources(ctx, req)
}

// unprepare calls NodeUnprepareResources for claims of one driver.
func (i *instance) unprepare(ctx context.Context, claims []*Claim) (*drav1.NodeUnprepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req := &drav1.NodeUnprepareResourcesRequest{Claims: wireClaims(claims)}
	if i.service == drav1beta1.DRAPluginService {
		return drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(i.conn)}.NodeUnprepareResources(ctx, req)
	}
	return drav1.NewDRAPluginClient(i.conn).NodeUnprepareResources(ctx, req)
}
