// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func profileCommand() *cobra.Command {
	var n nodeFlags
	var kind, file string
	var seconds int
	c := &cobra.Command{
		Use:   "profile SERVICE",
		Short: "Take a CPU, heap or goroutine profile of one service",
		Example: `  sextant profile podworker --seconds 30
  sextant profile pleg --kind heap -o pleg.heap && go tool pprof pleg.heap`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: services,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := serviceNamed(args[0])
			if err != nil {
				return err
			}
			path, ok := map[string]string{
				"cpu": fmt.Sprintf("profile?seconds=%d", seconds), "heap": "heap", "goroutine": "goroutine",
				"allocs": "allocs", "mutex": "mutex", "block": "block", "trace": fmt.Sprintf("trace?seconds=%d", seconds),
			}[kind]
			if !ok {
				return usageError(fmt.Errorf("--kind: %q is not cpu, heap, goroutine, allocs, mutex, block or trace", kind))
			}
			if file == "" {
				file = fmt.Sprintf("%s-%s-%s.pprof", s, kind, time.Now().Format("150405"))
			}
			size, err := fetch(c.Context(), n.paths.DebugSocket(s), "/debug/pprof/"+path, file, mostOfProfile)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
				return silent(s, err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d bytes; read it with: go tool pprof %s\n", file, size, file)
			return err
		},
	}
	n.asks(c)
	c.Flags().StringVar(&kind, "kind", "cpu", "cpu, heap, goroutine, allocs, mutex, block or trace")
	c.Flags().IntVar(&seconds, "seconds", 10, "how long to sample (cpu, trace)")
	c.Flags().StringVarP(&file, "file", "o", "", "where to write it")
	return c
}

// mostOfProfile is more than any profile has, and what a service that sends without end
// may take of the disk.
const mostOfProfile = 256 << 20

// fetch writes what a service answers to a file, and returns its size. An answer that is not
// whole, or that is larger than most, leaves no file. A file that is a device or a pipe stays.
func fetch(ctx context.Context, socket, path, file string, most int64) (int64, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unix"+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end below
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return 0, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(out, io.LimitReader(resp.Body, most+1))
	if err = errors.Join(err, out.Close()); err == nil && size > most {
		err = fmt.Errorf("%s: the answer is larger than %d bytes", path, most)
	}
	if err != nil {
		return 0, errors.Join(err, removeFile(file))
	}
	return size, nil
}

// removeFile removes what was written, which is not what a device or a pipe is: of
// /dev/null, there is nothing to remove.
func removeFile(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return os.Remove(path)
}
