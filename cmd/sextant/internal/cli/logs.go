// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

func logsCommand() *cobra.Command {
	var n nodeFlags
	req := &podworkerv1.ContainerLogsRequest{}
	var tail int64
	var since timeFlag
	c := &cobra.Command{
		Use:   "logs POD",
		Short: "Print a container's log, without an API server",
		Long: `Print a container's log, without an API server. On a terminal control characters are
made visible; output to a file or pipe is unchanged.`,
		Example: `  sextant logs hello
  sextant logs kube-system/etcd-node1 -c etcd -f --tail 20`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: n.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := podRows(c.Context(), n.paths)
			if err != nil {
				return err
			}
			if req.Namespace, req.Pod, err = findPod(rows, args[0]); err != nil {
				return err
			}
			if c.Flags().Changed("tail") {
				req.TailLines = &tail
			}
			if !since.t.IsZero() {
				req.SinceTime = timestamppb.New(since.t)
			}
			conn, err := rpc.Dial(rpc.ClientConfig{Socket: n.paths.Socket(house.PodWorker)})
			if err != nil {
				return err
			}
			defer conn.Close() //nolint:errcheck // nothing is left to send
			stream, err := podworkerv1.NewPodWorkerServiceClient(conn).ContainerLogs(c.Context(), req)
			if err != nil {
				return err
			}
			for {
				part, err := stream.Recv()
				if errors.Is(err, io.EOF) || c.Context().Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				if _, err := c.OutOrStdout().Write(part.GetData()); err != nil {
					return err
				}
			}
		},
	}
	n.asks(c)
	c.Flags().StringVarP(&req.Container, "container", "c", "", "the container; optional if the pod has one")
	c.Flags().BoolVarP(&req.Follow, "follow", "f", false, "follow the log as it grows")
	c.Flags().BoolVarP(&req.Previous, "previous", "p", false, "the former instance of the container")
	c.Flags().BoolVar(&req.Timestamps, "timestamps", false, "prefix each line with its time")
	c.Flags().Int64Var(&tail, "tail", 0, "only the last lines")
	c.Flags().Var(&since, "since", "only lines newer than a duration (5m) or a time (RFC 3339)")
	return c
}

// findPod finds a pod by "name" or "namespace/name"; a static pod also by the
// name its manifest gives it, without the node's.
func findPod(rows []podRow, arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok {
		namespace, name = "", arg
	}
	match := func(ok func(podRow) bool) []podRow {
		var found []podRow
		for _, r := range rows {
			if (namespace == "" || r.Namespace == namespace) && ok(r) {
				found = append(found, r)
			}
		}
		return found
	}
	found := match(func(r podRow) bool { return r.Name == name })
	if len(found) == 0 {
		found = match(func(r podRow) bool { return strings.HasPrefix(r.Name, name+"-") })
	}
	// Two pods of one name (static, or recreated) have one entry; the log is found by
	// name.
	found = slices.CompactFunc(found, func(a, b podRow) bool { return a.Namespace == b.Namespace && a.Name == b.Name })
	switch len(found) {
	case 0:
		return "", "", fmt.Errorf("no pod %q on this node (sextant pods lists them)", arg)
	case 1:
		return found[0].Namespace, found[0].Name, nil
	}
	var names []string
	for _, r := range found {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	return "", "", fmt.Errorf("%q may be any of %s", arg, strings.Join(names, ", "))
}
