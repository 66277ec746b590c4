// SPDX-License-Identifier: Apache-2.0

//go:build !race

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
)

// TestGeneration: each service that reads the configuration says which one it runs, and
// follows a change of the file.
func TestGeneration(t *testing.T) {
	n := startNode(t)
	readers := append([]house.Service{house.Config}, house.ConfigKubelet.Readers...)
	runs := func(want float64) func() bool {
		return func() bool {
			for _, s := range readers {
				f := n.families(s)["sextant_configuration_generation"]
				if f == nil {
					t.Fatalf("%s does not say which configuration it runs", s)
				}
				if f.Metric[0].GetGauge().GetValue() != want {
					return false
				}
			}
			return true
		}
	}
	for _, s := range readers {
		n.eventually(string(s)+" to answer", func() bool {
			conn, err := net.Dial("unix", n.paths.DebugSocket(s))
			return err == nil && conn.Close() == nil
		})
	}
	n.eventually("the first configuration in all services", runs(1))
	file := filepath.Join(n.dir, "kubelet.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "maxPods: 1000", "maxPods: 17", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	n.eventually("the second configuration in all services", runs(2))
}
