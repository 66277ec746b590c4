// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// TestJudge: a node that only waits for its API server is up; one that lacks
// anything else is not.
func TestJudge(t *testing.T) {
	const (
		down     = nodev1.Health_HEALTH_UNSPECIFIED
		starting = nodev1.Health_HEALTH_STARTING
		serving  = nodev1.Health_HEALTH_SERVING
		failing  = nodev1.Health_HEALTH_FAILING
	)
	api := func(complete bool, err string) *configv1.Source {
		return &configv1.Source{Complete: complete, Error: err}
	}
	away := map[string]*configv1.Source{"api": api(false, "connection refused"), "file": {Complete: true}}
	waiting := []said{
		{house.PodWorker, starting, "config.sources"}, {house.Config, starting, "API server: connection refused"},
		{house.Prober, starting, "config and pleg"}, {house.Pleg, serving, ""},
	}
	with := func(more said) []said { return append(append([]said(nil), waiting...), more) }
	tests := []struct {
		name    string
		answers []said
		sources map[string]*configv1.Source
		want    surroundings
	}{
		{"all serve", []said{{house.Config, serving, ""}, {house.Status, serving, ""}}, away, surroundings{}},
		{"only the API server is away", waiting, away, surroundings{"config: API server: connection refused", "connection refused"}},
		{"nothing was heard of it", waiting, map[string]*configv1.Source{"api": api(false, "")}, surroundings{"config: API server: connection refused", "no answer yet"}},
		{"the manifests are not read either", waiting, map[string]*configv1.Source{"api": api(false, "x"), "file": {}}, surroundings{text: "config: API server: connection refused"}},
		{"config does not say", waiting, nil, surroundings{text: "config: API server: connection refused"}},
		{"a service is down", with(said{house.Volume, down, "no such socket"}), away, surroundings{text: "volume: no such socket"}},
		{"the runtime is away", with(said{house.Resource, starting, "pleg.runtime"}), away, surroundings{text: "resource: pleg.runtime"}},
		{"config fails", []said{{house.Config, failing, "configuration refused"}}, away, surroundings{text: "config: configuration refused"}},
		{"the API server was read, podworker waits", []said{{house.PodWorker, starting, "pleg.pods"}}, map[string]*configv1.Source{"api": api(true, "")}, surroundings{text: "podworker: pleg.pods"}},
	}
	for _, tt := range tests {
		if got := judge(tt.answers, func() map[string]*configv1.Source { return tt.sources }); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestStepThatNobodyReads: a step is what was done, not what was said of it.
func TestStepThatNobodyReads(t *testing.T) {
	p := &progress{out: lost{}, start: time.Now()}
	if err := p.step("done", func() (string, error) { return "", nil }); err != nil {
		t.Errorf("a step that is done: %v", err)
	}
	failed := errors.New("failed")
	if err := p.step("failed", func() (string, error) { return "", failed }); !errors.Is(err, failed) {
		t.Errorf("a step that failed: %v", err)
	}
}

// lost is a terminal that has gone.
type lost struct{}

func (lost) Write([]byte) (int, error) { return 0, errors.New("input/output error") }
