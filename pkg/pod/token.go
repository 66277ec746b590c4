// SPDX-License-Identifier: Apache-2.0

package pod

import "time"

// DefaultTokenLife is the life of a service account's token for which none is named (API
// default).
const DefaultTokenLife = time.Hour

// TokenLife is the life that a token is asked for, by expirationSeconds of a volume or of a
// CSI driver; nil for none.
func TokenLife(seconds *int64) time.Duration {
	if seconds == nil {
		return DefaultTokenLife
	}
	return Seconds(*seconds)
}
