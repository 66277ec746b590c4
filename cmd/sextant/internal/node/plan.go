package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/localruntime"
)

// Plan is everything `up` decided, so that the supervisor, `down` and the next
// `up` agree on it. It is stored as node.json in the run directory.
type Plan struct {
	Run   string `json:"run"`
	State string `json:"state"`
	// RootDir is the kubelet's root directory, PodLogsDir its pod logs, LinksDir
	// the folder of the legacy log links.
	RootDir    string `json:"rootDir"`
	PodLogsDir string `json:"podLogsDir"`
	LinksDir   string `json:"linksDir"`
	LogDir     string `json:"logDir"`
	// Endpoint of the container runtime, and of its image service if another.
	Endpoint      string `json:"endpoint"`
	ImageEndpoint string `json:"imageEndpoint,omitempty"`
	NodeName      string `json:"nodeName"`
	// KubeConfig and Bootstrap are --kubeconfig and --bootstrap-kubeconfig,
	// CertDir is --cert-dir.
	KubeConfig string `json:"kubeconfig,omitempty"`
	Bootstrap  string `json:"bootstrapKubeconfig,omitempty"`
	CertDir    string `json:"certDir"`
	Bus        string `json:"bus,omitempty"`
	LogLevel   string `json:"logLevel"`
	// UIDBase is the first of the services' uids, where they have no accounts.
	UIDBase uint32 `json:"uidBase"`
	// Accounts are the services' own, made by the package.
	Accounts map[house.Service]Account `json:"accounts,omitempty"`
	// Library is the folder with a program for each service, for the supervisor;
	// without it every service runs the supervisor's own.
	Library string `json:"library,omitempty"`
	// Units is set when systemd runs the services, and not the supervisor.
	Units bool `json:"units,omitempty"`
	// CgroupRoot below which the pods' cgroups are made.
	CgroupRoot string `json:"cgroupRoot"`
	// Sockets are the addresses nodeapi listens on, by name: the supervisor holds
	// their sockets open while nodeapi is started again.
	Sockets map[string]string `json:"sockets,omitempty"`
	// GetStreams is nodeapi's --get-streams.
	GetStreams bool `json:"getStreams,omitempty"`
	// Kubelet are the kubelet flags, passed to config as they came.
	Kubelet []string `json:"kubelet,omitempty"`
	// WorkDir is where relative paths of those flags start.
	WorkDir string `json:"workDir"`
	// Local is set when the runtime is a private containerd made by `up`.
	Local *LocalRuntime `json:"local,omitempty"`
	// Disposable are folders that belong to this node alone; purging removes them.
	Disposable []string `json:"disposable,omitempty"`

	sockets heldSockets
}

// LocalRuntime is a private containerd.
type LocalRuntime struct {
	Dir         string   `json:"dir"`
	SocketGID   int      `json:"socketGID"`
	BinDir      string   `json:"binDir,omitempty"`
	CgroupRoots []string `json:"cgroupRoots,omitempty"`
	// SystemdCgroup: containers' cgroups are asked of systemd.
	SystemdCgroup bool `json:"systemdCgroup,omitempty"`
}

// Config is the same as localruntime takes it.
func (l *LocalRuntime) Config() localruntime.Config {
	return localruntime.Config{Dir: l.Dir, SocketGID: l.SocketGID, BinDir: l.BinDir, CgroupRoots: l.CgroupRoots, SystemdCgroup: l.SystemdCgroup}
}

// Paths of the node.
func (p *Plan) Paths() house.Paths { return house.Paths{Run: p.Run, State: p.State} }

func planFile(run string) string { return filepath.Join(run, "node.json") }

// ErrNoNode says that no node was started with a run directory.
var ErrNoNode = errors.New("no node was started here")

// ReadPlan reads the plan of the node in a run directory.
func ReadPlan(run string) (*Plan, error) { return readPlanFile(planFile(run)) }

func readPlanFile(path string) (*Plan, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), ErrNoNode)
	}
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Write stores the plan.
func (p *Plan) Write() error { return writePlan(planFile(p.Run), p) }

func writePlan(path string, p *Plan) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return file.Replace(path, append(data, '\n'), 0o644)
}

// Identities gives each service its uid.
func (p *Plan) Identities() house.Identities {
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = p.account(s).UID
	}
	return ids
}
