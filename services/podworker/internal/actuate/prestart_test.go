// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/test/fakecri"
)

// plugins prepare devices, or say why not.
type plugins struct {
	err   error
	asked []string
}

func (p *plugins) PreStart(_ context.Context, uid types.UID, container string) error {
	p.asked = append(p.asked, fmt.Sprintf("%s %s", uid, container))
	return p.err
}

// TestDevicesArePreparedBeforeEachStart: a container with devices of plugins is not made
// while they cannot be prepared; one without has no plugin asked.
func TestDevicesArePreparedBeforeEachStart(t *testing.T) {
	n := start(t, false)
	p := &plugins{err: errors.New("waiting for the device plugin of example.com/gpu")}
	n.deps.Devices = p
	spec := n.up(web())
	if _, err := n.StartContainer(n.ctx(), spec); err != nil || p.asked != nil {
		t.Fatal(err, p.asked)
	}
	spec.Allocation.OfPlugins, spec.RestartCount = true, 1
	_, err := n.StartContainer(n.ctx(), spec)
	var failed *Error
	if !errors.As(err, &failed) || failed.Reason != reason.CreateContainerConfigError || failed.Message != p.err.Error() {
		t.Errorf("started: %v", err)
	}
	p.err = nil
	if _, err := n.StartContainer(n.ctx(), spec); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(p.asked); got != "[uid-web web uid-web web]" {
		t.Errorf("plugins were asked for %s", got)
	}
	if got := n.rt.Count(fakecri.Match{Method: "CreateContainer"}); got != 2 {
		t.Errorf("%d containers were made", got)
	}
}
