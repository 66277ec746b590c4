// SPDX-License-Identifier: Apache-2.0

// Package figures is what the benchmark knows without running anything: samples,
// the run that holds them, the numbers to beat, the table, the chart, the
// comparison with earlier runs, and how log lines become a latency budget. All of
// it is values in, values out.
package figures
