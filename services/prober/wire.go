// SPDX-License-Identifier: Apache-2.0

package prober

import (
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

var wireKind = map[schedule.Kind]proberv1.ProbeKind{
	schedule.Startup:   proberv1.ProbeKind_PROBE_KIND_STARTUP,
	schedule.Liveness:  proberv1.ProbeKind_PROBE_KIND_LIVENESS,
	schedule.Readiness: proberv1.ProbeKind_PROBE_KIND_READINESS,
}

var kindOf = map[proberv1.ProbeKind]schedule.Kind{
	proberv1.ProbeKind_PROBE_KIND_STARTUP:   schedule.Startup,
	proberv1.ProbeKind_PROBE_KIND_LIVENESS:  schedule.Liveness,
	proberv1.ProbeKind_PROBE_KIND_READINESS: schedule.Readiness,
}

var wireResult = map[schedule.Result]proberv1.Result{
	schedule.Unknown: proberv1.Result_RESULT_UNSPECIFIED,
	schedule.Success: proberv1.Result_RESULT_SUCCESS,
	schedule.Failure: proberv1.Result_RESULT_FAILURE,
}

var resultOf = map[proberv1.Result]schedule.Result{
	proberv1.Result_RESULT_UNSPECIFIED: schedule.Unknown,
	proberv1.Result_RESULT_SUCCESS:     schedule.Success,
	proberv1.Result_RESULT_FAILURE:     schedule.Failure,
}
