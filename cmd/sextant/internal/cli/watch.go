// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

func watchCommand() *cobra.Command {
	var n nodeFlags
	var url, format string
	var hellos bool
	c := &cobra.Command{
		Use:   "watch",
		Short: "Follow the bus: every change, as it is announced",
		Example: `  sextant watch
  sextant watch --hello -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usageError(fmt.Errorf("--output: %q is not text or json", format))
			}
			client, err := bus.Connect(bus.ClientConfig{
				Service: house.Operator, AddressFile: n.paths.BusAddress(), URL: url,
				KeyFile: bus.KeyFile(n.paths.BusKeys(), house.Operator), Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return err
			}
			defer client.Close()
			w := &watchWriter{out: c.OutOrStdout(), json: format == "json", hellos: hellos}
			w.pulls = func() map[string]*podworkerv1.PodPulls {
				items, err := service.Pull(c.Context(), n.paths, house.PodWorkerPulls, feed.Whole[*podworkerv1.PodPulls])
				if err != nil {
					return nil
				}
				return items
			}
			if err := client.Follow(w.message); err != nil {
				return err
			}
			if err := w.awaitBus(c, client); err != nil {
				return err
			}
			<-c.Context().Done()
			return w.err
		},
	}
	n.asks(c)
	c.Flags().StringVar(&url, "bus", "", "URL of a NATS server other than the node's own")
	c.Flags().BoolVar(&hellos, "hello", false, "show the services' heartbeats too")
	c.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return c
}

type watchWriter struct {
	mu     sync.Mutex
	out    io.Writer
	json   bool
	hellos bool
	err    error
	// pulls reads podworker.pulls; nil when podworker does not answer.
	pulls func() map[string]*podworkerv1.PodPulls
}

// awaitBus gives the bus three seconds: with a bus that is switched off there
// is nothing to follow.
func (w *watchWriter) awaitBus(c *cobra.Command, client *bus.Client) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Second)
	for !client.Connected() {
		select {
		case <-c.Context().Done():
			return nil
		case <-limit:
			return notWell("the bus does not answer: switched off, or down (sextant status says which)")
		case <-tick.C:
		}
	}
	return nil
}

func (w *watchWriter) message(subject string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m proto.Message = &feedv1.Announcement{}
	hello := strings.HasSuffix(subject, ".hello")
	if hello {
		if !w.hellos {
			return
		}
		m = &nodev1.HelloResponse{}
	}
	if err := proto.Unmarshal(data, m); err != nil {
		m = nil
	}
	now := time.Now()
	if w.json {
		body, err := protojson.Marshal(m)
		if m == nil || err != nil {
			body = []byte("null")
		}
		w.err = errors.Join(w.err, json.NewEncoder(w.out).Encode(map[string]any{
			"time": now, "subject": subject, "message": json.RawMessage(body),
		}))
		return
	}
	text := "(not understood)"
	switch m := m.(type) {
	case *feedv1.Announcement:
		text = fmt.Sprintf("%-18s %-40s revision %d", m.GetFeed(), m.GetKey(), m.GetRevision().GetN())
		if m.GetFeed() == house.PodWorkerPulls.Name && w.pulls != nil {
			text += "  " + cmp.Or(describePulls(w.pulls()[m.GetKey()], now), "done")
		}
	case *nodev1.HelloResponse:
		text = fmt.Sprintf("%-18s %-40s pid %d %s", m.GetService()+" hello", lower(m.GetHealth().String(), "HEALTH_"), m.GetPid(), m.GetVersion())
	}
	if _, err := fmt.Fprintf(w.out, "%s  %s\n", now.Format("15:04:05.000"), text); err != nil {
		w.err = errors.Join(w.err, err)
	}
}
