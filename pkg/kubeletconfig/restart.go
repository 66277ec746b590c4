// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import "strings"

// restarts are the fields that are read only at a start, and what has to be started again.
// All others take effect in a service when it has the generation. "prepare" is
// sextant-prepare.service, or sextant up as a whole.
var restarts = map[string]string{
	"podLogsDir":               "prepare, podworker",
	"containerRuntimeEndpoint": "prepare, podworker",
	"imageServiceEndpoint":     "prepare, podworker",
	"cgroupRoot":               "prepare, gate",
	"makeIPTablesUtilChains":   "prepare, tools",
	"protectKernelDefaults":    "prepare",
	"oomScoreAdj":              "sextant up",
	"maxOpenFiles":             "sextant up",
	"logging.format":           "sextant up",
}

// Restart is what has to be started again for a changed field to take effect, by the names
// of services and root's parts; empty for what takes effect at once. Everything that only
// flags set is read at a start.
func Restart(field string) string {
	if strings.HasPrefix(field, "node.") {
		return "prepare, all services"
	}
	return restarts[field]
}

// WithRestarts are changed fields, each with what has to be started again.
func WithRestarts(fields []string) []string {
	all := make([]string, 0, len(fields))
	for _, field := range fields {
		if who := Restart(field); who != "" {
			field += " (needs a restart of " + who + ")"
		}
		all = append(all, field)
	}
	return all
}
