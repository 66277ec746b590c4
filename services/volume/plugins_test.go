// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/standin"
)

// TestEveryTypeHasAPlugin: the table and the registry agree, and every plugin of persistent
// volumes is asked what stands.
func TestEveryTypeHasAPlugin(t *testing.T) {
	kit := standin.New(t).Kit(house.Volume)
	file, _, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "state.db"), Schema: schema, Log: kit.Log})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // nothing is in it
	root := t.TempDir()
	made, err := newPlugins(kit, root, setup.NewHost(root), file, time.Now, func(string, string, string, time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	types := volumetype.Made()
	for name := range made.registry {
		if !slices.Contains(types, name) {
			t.Errorf("%s is not a type of the table", name)
		}
	}
	for _, name := range types {
		if made.registry[name] == nil {
			t.Errorf("%s has no plugin", name)
		}
	}
}
