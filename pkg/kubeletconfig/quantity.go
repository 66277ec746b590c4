// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pattern"
)

// longExponent matches numbers whose exponent has three digits or more. The
// quantity parser would expand "1e-999999999" digit by digit, for hours.
var longExponent = pattern.Lazy(`[eE][+-]?0*[1-9][0-9]{2,}$`)

// checkQuantity refuses text that is unreasonable as a quantity.
func checkQuantity(s string) error {
	if len(s) > 256 || longExponent().MatchString(s) {
		return fmt.Errorf("%q is not a reasonable quantity", clip(s))
	}
	return nil
}

// parseQuantity parses a resource quantity such as 200m or 1Gi.
func parseQuantity(s string) (resource.Quantity, error) {
	if err := checkQuantity(s); err != nil {
		return resource.Quantity{}, err
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("%q is not a quantity such as 200m or 1Gi", clip(s))
	}
	return q, nil
}

// parsePercent parses "10%" to 0.1. The fraction has the precision of a float32,
// as in the kubelet, so that both subtract the same bytes from allocatable.
func parsePercent(s string) (float64, error) {
	f, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 32)
	if err != nil || f != f {
		return 0, fmt.Errorf("%q is not a percentage such as 10%%", clip(s))
	}
	return float64(float32(f) / 100), nil
}
