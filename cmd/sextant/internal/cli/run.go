// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/volume"
)

// runCommand holds a sub-command for each service. They are below `run` because
// `sextant status` is the operator's. If args begin with the name of a service, it alone is
// there.
func runCommand(args []string) *cobra.Command {
	c := &cobra.Command{
		Use:   "run SERVICE",
		Short: "Run one service of the node in the foreground",
		Example: `  sextant run bus
  sextant run podworker --container-runtime-endpoint unix:///run/containerd/containerd.sock
  sextant run config --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf`,
	}
	// A name that is none comes here.
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		_, err := serviceNamed(args[0])
		return err
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	services := serve.Services()
	if named := slices.IndexFunc(services, func(s serve.Service) bool { return len(args) > 0 && args[0] == string(s.Name) }); named >= 0 {
		services = services[named : named+1]
	}
	for _, s := range services {
		c.AddCommand(runOne(s))
	}
	return c
}

func runOne(s serve.Service) *cobra.Command {
	opts := service.Options{Service: s.Name}
	level, format := "info", service.JSON
	c := &cobra.Command{
		Use:   string(s.Name),
		Short: s.Short,
		Args:  cobra.NoArgs,
	}
	build := s.Flags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		parsed, err := service.ParseLevel(level)
		if err != nil {
			return usageError(fmt.Errorf("--log-level: %w", err))
		}
		if format != service.JSON && format != service.Text {
			return usageError(fmt.Errorf("--log-format: %q is neither json nor text", format))
		}
		opts.Level = &slog.LevelVar{}
		opts.Level.Set(parsed)
		opts.Log = service.NewLogger(os.Stderr, format, string(s.Name), opts.Level)
		klog.SetSlogLogger(opts.Log) // the log of Kubernetes' libraries
		kit, err := service.New(opts)
		if err != nil {
			return forRoot(err)
		}
		if err := build(kit); err != nil {
			kit.Log.Error("not started", service.KeyError, err.Error())
			return forRoot(err)
		}
		return forRoot(kit.Run(c.Context()))
	}
	c.Flags().StringVar(&opts.Paths.Run, "run-dir", defaultRun, "the node's run directory")
	c.Flags().StringVar(&opts.Paths.State, "state-dir", defaultState, "the node's state directory")
	c.Flags().StringVar(&opts.Bus, "bus", "", `"off", or the URL of a NATS server to use instead of the node's own`)
	c.Flags().StringVar(&level, "log-level", level, "debug, info, warn or error")
	c.Flags().StringVar(&format, "log-format", format, "json or text")
	c.Flags().SortFlags = !strings.EqualFold(string(s.Name), string(house.Config))
	return c
}

// forRoot is an error of a service, and why another user than root may have it.
func forRoot(err error) error {
	if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
		return usageError(fmt.Errorf("run needs root, or folders that sextant up or sextant prepare has made: %w", err))
	}
	return err
}

// volumeStepsCommand is a child of volume.
func volumeStepsCommand() *cobra.Command {
	root := ""
	c := &cobra.Command{
		Use: serve.VolumeSteps, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return volume.ServeSteps(root, os.Stdin, os.Stdout) },
	}
	c.Flags().StringVar(&root, "root-dir", "", "the kubelet's root directory")
	return c
}

func supervisorLog(w io.Writer) *slog.Logger {
	return service.NewLogger(w, service.JSON, "supervisor", slog.LevelInfo)
}
