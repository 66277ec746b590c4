// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// Plan is everything `up` decided, so that the supervisor, `down` and the next
// `up` agree on it. It is stored as node.json in the run directory. It has many fields
// because that file is flat, and other versions read it.
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
	// LogFormat is how all write their logs, json when empty. With an empty LogDir they
	// go to the supervisor's stderr.
	LogFormat string `json:"logFormat,omitempty"`
	// UIDBase is the first of the services' uids, where they have no accounts.
	UIDBase uint32 `json:"uidBase"`
	// Accounts are the services' own, made by the package.
	Accounts map[house.Service]Account `json:"accounts,omitempty"`
	// Library is the folder with a program for each service, for the supervisor;
	// without it every service runs the supervisor's own.
	Library string `json:"library,omitempty"`
	// Units is set when systemd runs the services instead of the supervisor.
	Units bool `json:"units,omitempty"`
	// CgroupRoot below which the pods' cgroups are made.
	CgroupRoot string `json:"cgroupRoot"`
	// Chains: the kubelet's chains of iptables are kept (makeIPTablesUtilChains).
	Chains bool `json:"chains,omitempty"`
	// Sockets are the addresses nodeapi listens on, by name: the supervisor holds
	// their sockets open while nodeapi is started again.
	Sockets map[string]string `json:"sockets,omitempty"`
	// GetStreams is nodeapi's --get-streams.
	GetStreams bool `json:"getStreams,omitempty"`
	// KeepSecrets is config's --keep-secrets; empty for its default.
	KeepSecrets string `json:"keepSecrets,omitempty"`
	// Kubelet are the kubelet flags, passed to config unchanged.
	Kubelet []string `json:"kubelet,omitempty"`
	// LockFile and ExitOnLockContention are --lock-file and --exit-on-lock-contention, for
	// the supervisor.
	LockFile             string `json:"lockFile,omitempty"`
	ExitOnLockContention bool   `json:"exitOnLockContention,omitempty"`
	// WorkDir is where relative paths of those flags start.
	WorkDir string `json:"workDir"`
	// Disposable are folders that belong to this node alone; purging removes them.
	Disposable []string `json:"disposable,omitempty"`
}

// Paths of the node.
func (p *Plan) Paths() house.Paths { return house.Paths{Run: p.Run, State: p.State} }

func planFile(run string) string { return filepath.Join(run, "node.json") }

// ErrNoNode says that no node was started with this run directory.
var ErrNoNode = errors.New("no node was started here")

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

// writeJSON writes a file for an account, unless it is up to date: it may be on a disk that
// takes no writes.
func writeJSON(path string, value any, mode fs.FileMode, of Account) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if info, err := os.Lstat(path); err == nil && info.Mode() == mode && ownerOf(info) == of.UID {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
			return nil
		}
	}
	if err := file.Replace(path, data, mode); err != nil || of == (Account{}) {
		return err
	}
	return os.Chown(path, int(of.UID), int(of.GID))
}

// Identities gives each service its uid.
func (p *Plan) Identities() house.Identities {
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = p.account(s).UID
	}
	return ids
}

// Account is the uid and the group of one service.
type Account struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// account of a service: its own, or the numbers from UIDBase on.
func (p *Plan) account(s house.Service) Account {
	if own, ok := p.Accounts[s]; ok {
		return own
	}
	for i, each := range house.Services() {
		if each == s {
			return Account{UID: p.UIDBase + uint32(i), GID: p.UIDBase + uint32(i)}
		}
	}
	return Account{}
}
