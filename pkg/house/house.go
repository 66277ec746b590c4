// SPDX-License-Identifier: Apache-2.0

// Package house is the one table of who lives on the node: the services, what
// each feed is called, who owns it and who may read it, which methods a peer
// may call, and where the sockets are.
//
// It owns no state. rpc takes its authorization from here, bus its subject
// permissions, the operator's verbs their lists, and the architecture page is
// checked against it, so that all of them agree by construction.
package house

import "path/filepath"

// Service is the name of one process of the node.
type Service string

// The services; their order is that of Services.
const (
	Bus       Service = "bus"
	PodWorker Service = "podworker"
	Config    Service = "config"
	Pleg      Service = "pleg"
	Prober    Service = "prober"
	Volume    Service = "volume"
	Resource  Service = "resource"
	Status    Service = "status"
	NodeAPI   Service = "nodeapi"
	// Operator is not a process of the node: it is root at a terminal.
	Operator Service = "operator"
)

// Protocol is the version of the contracts in proto/ that this build speaks.
// Neighbours accept it and the one before.
const Protocol = 1

// Services lists every service in start order, and is the only place that does.
// podworker comes before its readers because its broker is a leaf; its workers wait
// for the others.
func Services() []Service {
	return []Service{Bus, PodWorker, Config, Pleg, Prober, Volume, Resource, Status, NodeAPI}
}

// Paths of one node below its run directory (default /run/sextant): a folder a
// service, owned by the service's uid.
type Paths struct{ Run, State string }

// Socket is where a service answers gRPC.
func (p Paths) Socket(s Service) string { return filepath.Join(p.Run, string(s), "grpc.sock") }

// DebugSocket is where a service answers HTTP: /metrics and /debug/pprof.
func (p Paths) DebugSocket(s Service) string { return filepath.Join(p.Run, string(s), "debug.sock") }

// Events is the file of a service's last events, for its next process.
func (p Paths) Events(s Service) string { return filepath.Join(p.Run, string(s), "events") }

// Broker is podworker's CRI socket.
func (p Paths) Broker() string { return filepath.Join(p.Run, string(PodWorker), "cri.sock") }

// Supervisor is the socket of the supervisor, which is no service (RootPart).
func (p Paths) Supervisor() string { return filepath.Join(p.Run, "supervisor", "grpc.sock") }

// Tools is the socket of what runs root's tools for volume.
func (p Paths) Tools() string { return filepath.Join(p.Run, "tools", "grpc.sock") }

// Identities is the file that maps services to uids.
func (p Paths) Identities() string { return filepath.Join(p.Run, "identities.json") }

// BusKeys is the folder of the bus credentials, one file a service.
func (p Paths) BusKeys() string { return filepath.Join(p.Run, "bus-keys") }

// BusAddress is the file that tells where the bus listens.
func (p Paths) BusAddress() string { return filepath.Join(p.Run, string(Bus), "url") }

// CertDir is the folder below --cert-dir that holds the certificates of a service:
// config's client certificate and nodeapi's serving certificate, under the kubelet's
// names. It is the service's alone; what has those names in --cert-dir itself is a
// link to it.
func CertDir(certDir string, s Service) string { return filepath.Join(certDir, "sextant-"+string(s)) }

// StateOf is a service's durable folder (default below /var/lib/sextant).
func (p Paths) StateOf(s Service) string { return filepath.Join(p.State, string(s)) }
