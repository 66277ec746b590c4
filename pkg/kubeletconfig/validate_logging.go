// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"math"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// logging checks the logging section. The library's own validation knows only
// formats that are linked in and looks at global flags, so it is not used.
func (v *validator) logging() {
	l, p := &v.k.Logging, at("logging")
	oneOf(v, "logging.format", l.Format, "text", "json")
	if d := l.FlushFrequency.Duration.Duration; d <= 0 {
		v.invalid(p.Child("flushFrequency"), d.String(), "must be greater than zero")
	}
	if l.Verbosity > math.MaxInt32 {
		v.invalid(p.Child("verbosity"), uint32(l.Verbosity), "must be at most %d", math.MaxInt32)
	}
	if len(l.VModule) > 0 && l.Format != "text" {
		v.forbidden(p.Child("vmodule"), "works with the text format only")
	}
	for i, item := range l.VModule {
		switch q := p.Child("vmodule").Index(i); {
		case item.FilePattern == "":
			v.required(q.Child("filePattern"), "must name source files")
		case strings.ContainsAny(item.FilePattern, "=,"):
			v.invalid(q.Child("filePattern"), item.FilePattern, "must not hold an equals sign or a comma")
		case item.Verbosity > math.MaxInt32:
			v.invalid(q.Child("verbosity"), uint32(item.Verbosity), "must be at most %d", math.MaxInt32)
		}
	}
	v.outputRouting(p.Child("options", "text"), l.Options.Text.OutputRoutingOptions)
	v.outputRouting(p.Child("options", "json"), l.Options.JSON.OutputRoutingOptions)
}

func (v *validator) outputRouting(p *field.Path, o logsapi.OutputRoutingOptions) {
	const gate = "LoggingAlphaOptions"
	if v.gates.enabled(gate) {
		return
	}
	if o.SplitStream {
		v.forbidden(p.Child("splitStream"), "requires the feature gate %s", gate)
	}
	if o.InfoBufferSize.Sign() != 0 {
		v.forbidden(p.Child("infoBufferSize"), "requires the feature gate %s", gate)
	}
}

// previousMinor is the only release whose hidden metrics can be shown.
const previousMinor = "1.35"

// observability checks metrics and tracing.
func (v *validator) observability() {
	if s := v.k.ShowHiddenMetricsForVersion; s != "" && s != previousMinor {
		v.invalid(at("showHiddenMetricsForVersion"), s, "must be empty or the previous minor release, %s", previousMinor)
	}
	t := v.k.Tracing
	if t == nil {
		return
	}
	if rate := t.SamplingRatePerMillion; rate != nil {
		v.between("tracing.samplingRatePerMillion", int64(*rate), 0, 1000000)
	}
	if t.Endpoint == nil {
		return
	}
	endpoint := *t.Endpoint
	if !strings.Contains(endpoint, "//") {
		endpoint = "dns://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || !slices.Contains([]string{"dns", "unix", "unix-abstract"}, u.Scheme) {
		v.invalid(at("tracing.endpoint"), *t.Endpoint, "must be host:port, or a dns, unix or unix-abstract URL")
	}
}
