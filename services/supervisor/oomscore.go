// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"strconv"
)

// AdjustOOMScore sets the process's oom_score_adj (proc(5), -1000 to 1000; a kubelet's
// oomScoreAdj). The processes that it starts inherit it.
func AdjustOOMScore(score int) error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
