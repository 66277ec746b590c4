// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// amount is a number that kubectl top shows.
var amount = regexp.MustCompile(`\b\d+(m|Mi|%)`)

// tops is what kubectl top shows of the pods that stay as they are, and of the
// node: a metrics-server has scraped it.
func tops(ctx context.Context, s *side) ([]string, error) {
	node, err := s.kubectlText(ctx, "top", "node", s.Name, "--no-headers")
	if err != nil {
		return nil, err
	}
	facts := []string{"top node: " + shape(s, node)}
	rows, err := s.kubectlText(ctx, "top", "pods", "--containers", "--no-headers")
	if err != nil {
		return nil, err
	}
	var steady []string
	for _, pod := range comparedPods() {
		if !pod.unsteady {
			steady = append(steady, pod.nameOn(s))
		}
	}
	for row := range strings.Lines(rows) {
		if fields := strings.Fields(row); slices.Contains(steady, fields[0]) {
			facts = append(facts, "top pod: "+shape(s, row))
		}
		if memory := 0; strings.HasPrefix(row, "plain ") {
			_, err := fmt.Sscanf(strings.Fields(row)[3], "%dMi", &memory)
			facts = append(facts, fmt.Sprintf("top pod: a server has between 1 and 100 MiB: %v, %v", 1 <= memory && memory <= 100, err))
		}
	}
	return facts, nil
}

// shape is a row without its numbers.
func shape(s *side, row string) string {
	return amount.ReplaceAllString(strings.Join(strings.Fields(s.normalizer().Text(row)), " "), "N$1")
}
