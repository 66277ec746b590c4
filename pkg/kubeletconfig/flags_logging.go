// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// loggingFlags are backed by the logging section of KubeletConfiguration.
var loggingFlags = []flagRow{
	{name: "v", short: "v", field: "logging.verbosity", current: true,
		bind:  value(func(t *target) pflag.Value { return logsapi.VerbosityLevelPflag(&t.k.Logging.Verbosity) }),
		usage: "log verbosity"},
	{name: "vmodule", field: "logging.vmodule", current: true,
		bind:  value(func(t *target) pflag.Value { return logsapi.VModuleConfigurationPflag(&t.k.Logging.VModule) }),
		usage: "log verbosity per source file (pattern=N,...), text format only"},
	{name: "log-flush-frequency", field: "logging.flushFrequency", current: true,
		bind:  dur(func(t *target) *time.Duration { return &t.k.Logging.FlushFrequency.Duration.Duration }),
		usage: "longest time between two log flushes"},
	{name: "logging-format", field: "logging.format",
		bind:  str(func(t *target) *string { return &t.k.Logging.Format }),
		usage: "log format: text or json"},
	{name: "log-text-split-stream", field: "logging.options.text.splitStream",
		bind:  boolean(func(t *target) *bool { return &t.k.Logging.Options.Text.SplitStream }),
		usage: "in text format, errors to stderr and the rest to stdout (alpha)"},
	{name: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize",
		bind:  value(func(t *target) pflag.Value { return quantityValue{&t.k.Logging.Options.Text.InfoBufferSize} }),
		usage: "in text format with split streams, bytes of info messages to buffer (alpha)"},
	{name: "log-json-split-stream", field: "logging.options.json.splitStream",
		bind:  boolean(func(t *target) *bool { return &t.k.Logging.Options.JSON.SplitStream }),
		usage: "in JSON format, errors to stderr and the rest to stdout (alpha)"},
	{name: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize",
		bind:  value(func(t *target) pflag.Value { return quantityValue{&t.k.Logging.Options.JSON.InfoBufferSize} }),
		usage: "in JSON format with split streams, bytes of info messages to buffer (alpha)"},
}
