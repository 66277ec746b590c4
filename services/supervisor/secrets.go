// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// secrets are the parts of a plan that only one service may read: a file for each
// service that has any, owned by it. config's has all of them.
type secrets struct {
	Kubelet []string `json:"kubelet,omitempty"`
	Bus     string   `json:"bus,omitempty"`
}

// concealed replaces a value that is in the secrets.
const concealed = "<secret>"

func secretFile(state string, s house.Service) string {
	return filepath.Join(state, "secrets", string(s)+".json")
}

// public is the plan without its secrets, for all to read.
func (p *Plan) public() (*Plan, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	public := &Plan{}
	err = json.Unmarshal(data, public)
	public.Kubelet, public.Bus = concealFlags(p.Kubelet), concealURL(p.Bus)
	return public, err
}

// concealFlags replaces the values of flags that may hold credentials.
func concealFlags(args []string) []string {
	public := slices.Clone(args)
	for i := range public {
		name, _, joined := strings.Cut(public[i], "=")
		if !strings.HasPrefix(name, "-") || !kubeletconfig.IsClassified(strings.TrimLeft(name, "-")) {
			continue
		}
		if joined {
			public[i] = name + "=" + concealed
		} else if i+1 < len(public) {
			public[i+1] = concealed
		}
	}
	return public
}

// concealURL removes user and password from the comma-separated URLs of a bus.
func concealURL(bus string) string {
	urls := strings.Split(bus, ",")
	for i, u := range urls {
		if at := strings.LastIndex(u, "@"); at >= 0 {
			scheme, _, ok := strings.Cut(u[:at], "//")
			urls[i] = u[at+1:]
			if ok {
				urls[i] = scheme + "//" + u[at+1:]
			}
		}
	}
	return strings.Join(urls, ",")
}

// keepSecrets writes what the public plan leaves out, for the services that need it.
func (p *Plan) keepSecrets(public *Plan) error {
	if err := os.MkdirAll(filepath.Dir(secretFile(p.State, "")), 0o755); err != nil {
		return err
	}
	var all []error
	for _, s := range house.Services() {
		var own secrets
		if public.Bus != p.Bus {
			own.Bus = p.Bus
		}
		if s == house.Config && !slices.Equal(public.Kubelet, p.Kubelet) {
			own.Kubelet = p.Kubelet
		}
		path := secretFile(p.State, s)
		if own.Bus == "" && own.Kubelet == nil {
			all = append(all, file.Remove(path))
			continue
		}
		// The folder is root's: the name stays what was written.
		all = append(all, writeJSON(path, own, 0o600, p.account(s)))
	}
	return errors.Join(all...)
}

// reveal fills in the secrets that the caller may read.
func (p *Plan) reveal() error {
	for _, s := range house.Services() {
		path := secretFile(p.State, s)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		var own secrets
		if err := json.Unmarshal(data, &own); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if own.Bus != "" {
			p.Bus = own.Bus
		}
		if own.Kubelet != nil {
			p.Kubelet = own.Kubelet
		}
	}
	return nil
}

// ReadPlan reads the plan of the node in a run directory, with those of its secrets
// that the caller may read.
func ReadPlan(run string) (*Plan, error) {
	p, err := readPlanFile(planFile(run))
	if err != nil {
		return nil, err
	}
	return p, p.reveal()
}

// Write stores the plan for all to read, without its secrets.
func (p *Plan) Write() error {
	public, err := p.public()
	if err != nil {
		return err
	}
	return errors.Join(p.keepSecrets(public), writeJSON(planFile(p.Run), public, 0o644, Account{}))
}
