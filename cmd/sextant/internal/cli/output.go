// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// output is how a verb prints a table.
type output struct{ format string }

func (o *output) register(c *cobra.Command) {
	c.Flags().StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
	mustNot(c.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp
	}))
}

// inCell keeps text of a container from making rows or columns.
var inCell = strings.NewReplacer("\n", " ", "\t", " ", "\v", " ", "\f", " ")

// print writes rows as JSON or YAML, or as a table with a header.
func (o *output) print(w io.Writer, rows any, header []string, cells [][]string) error {
	switch o.format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	case "yaml":
		data, err := yaml.Marshal(rows)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	case "table":
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, line := range append([][]string{header}, cells...) {
			for i := range line {
				line[i] = inCell.Replace(line[i])
			}
			if _, err := fmt.Fprintln(t, strings.TrimRight(strings.Join(line, "\t"), "\t")); err != nil {
				return err
			}
		}
		return t.Flush()
	}
	return usageError(fmt.Errorf("--output: %q is not table, json or yaml", o.format))
}

func ageOf(t time.Time, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t))
}

func orDash(s string) string {
	return cmp.Or(s, "-")
}
