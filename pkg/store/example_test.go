// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/store"
)

// What a process wrote is there for the process that is started after it was killed.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	type admission struct{ CPUs string }
	start := func(work func(*store.Table[admission])) {
		s, damage, err := store.Open(store.Config{
			Path: filepath.Join(dir, "state.db"), Schema: 1, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = s.Close() }()
		fmt.Println("damaged:", damage != nil)
		work(store.NewTable(s, "admissions", store.JSON[admission]()))
	}

	start(func(t *store.Table[admission]) {
		fmt.Println("put:", t.Put("uid-1", admission{CPUs: "2-3"})) // nil: it survives a kill
	})
	start(func(t *store.Table[admission]) {
		all, err := t.All()
		fmt.Println(all, err, t.Delete("uid-1"))
	})
	// Output:
	// damaged: false
	// put: <nil>
	// damaged: false
	// map[uid-1:{2-3}] <nil> <nil>
}
