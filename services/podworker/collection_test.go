// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// TestCollectionThatFailsIsAnEvent: while the runtime does not answer, and while the logs
// of pods cannot be listed, each minute.
func TestCollectionThatFailsIsAnEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	event := func(why string) func() bool {
		return func() bool {
			return slices.ContainsFunc(n.told(), func(e string) bool { return strings.HasPrefix(e, "ContainerGCFailed node "+why) })
		}
	}
	p := web("a") // it runs: podworker has come to count the minutes
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	healthy, _ := n.runtime.Get("runtime")
	away := proto.CloneOf(healthy)
	away.Responding, away.Error = false, "connection refused"
	n.set(n.runtime.Set(context.Background(), "runtime", away))
	n.pass("an event of the runtime", 10*time.Second, event("connection refused"))
	n.set(n.runtime.Set(context.Background(), "runtime", healthy))
	n.until("it answers", func() bool { s, _ := n.loop.in.Runtime.Get("runtime"); return s.away == "" })
	logs := filepath.Join(n.dir, "pods")
	n.must(os.RemoveAll(logs))
	n.must(os.WriteFile(logs, nil, 0o600))
	n.pass("an event of the logs", 10*time.Second, event(`failed to read podLogsRootDirectory "`+logs+`": `))
}
