// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"
	info "k8s.io/apimachinery/pkg/version"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
)

// upArgs is the variable with the flags of `sextant up` for a program called kubelet,
// whose arguments are a kubelet's.
const upArgs = "SEXTANT_ARGS"

// CalledKubelet reports whether the program was started under the name of a kubelet,
// by a link or a copy, with a kubelet's arguments. A kubelet has no verbs: with a verb
// it is a part of the node that the program has started itself.
func CalledKubelet(args []string) bool {
	return filepath.Base(args[0]) == "kubelet" && (len(args) == 1 || strings.HasPrefix(args[1], "-"))
}

// Kubelet is the command of the program called kubelet: `sextant up` in the foreground
// with a kubelet's flags and manners. The logs of all parts go to stderr as text, and
// all parts run below the unit that started it.
func Kubelet() *cobra.Command {
	flags := &kubeletconfig.Flags{}
	c := &cobra.Command{
		Use:   "kubelet",
		Short: "The node agent, as a kubelet",
		Long: `Sextant under the name of a kubelet: takes a kubelet's flags and configuration, and
runs all parts of the node below this process. The flags of "sextant up" are those of
the variable ` + upArgs + `.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if v := flags.Version(); v != "" {
				return printVersion(c.OutOrStdout(), v == "raw")
			}
			u := upFlags{kubelet: true, logFormat: service.Text}
			own := u.set()
			if err := own.Parse(strings.Fields(os.Getenv(upArgs))); err != nil {
				return fmt.Errorf("%s: %w", upArgs, err)
			}
			return up(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), &u, flags, os.Args[1:])
		},
	}
	flags.AddFlags(c.Flags())
	c.SetOut(os.Stdout)
	c.SetErr(os.Stderr)
	return c
}

// printVersion prints what kubeadm and upstream's tests read of a kubelet.
func printVersion(w io.Writer, raw bool) error {
	release := kubeletconfig.Release
	if !raw {
		_, err := fmt.Fprintln(w, "Kubernetes", release)
		return err
	}
	v := version.MustParseSemantic(release)
	_, err := fmt.Fprintf(w, "%#v\n", info.Info{
		Major: fmt.Sprint(v.Major()), Minor: fmt.Sprint(v.Minor()), GitVersion: release, GitCommit: "sextant " + service.Version,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		BuildDate: time.Time{}.Format(time.RFC3339),
	})
	return err
}
