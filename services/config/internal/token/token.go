// SPDX-License-Identifier: Apache-2.0

// Package token hands out service-account tokens bound to pods, from a cache
// where it can.
//
// The judgement (Fresh, Usable) is pure and the kubelet's: a token is renewed
// once 80 % of its life or 24 hours are over, a little early at random; if that
// fails, the old one serves for as long as it is valid. Tokens are kept on disk
// by the caller, so that a node that was powered off starts its pods without
// the API server; where that answers, a token of an earlier boot is asked for again.
package token

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is what a token is wanted for.
type Request struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string
	// Expiration is the life asked for.
	Expiration time.Duration
	PodName    string
	PodUID     string
	// AccountUID is the UID the service account must have; empty for any.
	AccountUID string
}

// Key names what the token is for; it holds no secret.
func (r Request) Key() string {
	audiences := slices.Clone(r.Audiences)
	for i, a := range audiences {
		audiences[i] = strconv.Quote(a)
	}
	key := fmt.Sprintf("%s/%s/%s/%s/%d/%s", r.PodUID, r.Namespace, r.ServiceAccount, r.PodName,
		int64(r.Expiration/time.Second), strings.Join(audiences, ","))
	if r.AccountUID != "" {
		key += "/" + r.AccountUID
	}
	return key
}

// Token is an answer, as kept on disk.
type Token struct {
	Token   string    `json:"token"`
	PodUID  string    `json:"podUID"`
	Expires time.Time `json:"expires"`
	// Life is the time from issue to expiry.
	Life time.Duration `json:"life"`
	// Boot is the boot of the machine it was issued in.
	Boot string `json:"boot,omitempty"`
}

// Limits of a token's use.
const (
	maxAge    = 24 * time.Hour
	maxJitter = 10 * time.Second
)

// Fresh reports whether a token needs no renewal yet: neither by the clock nor by the time
// that has passed since. jitter is in [0, 1).
func (t Token) Fresh(now, since time.Time, jitter float64) bool {
	early := time.Duration(jitter * float64(maxJitter))
	issued := t.Expires.Add(-t.Life)
	renew := t.Expires.Add(-t.Life / 5)
	if oldest := issued.Add(maxAge); oldest.Before(renew) {
		renew = oldest
	}
	renew = renew.Add(-early)
	return now.Before(renew) && now.Sub(since) < renew.Sub(issued)
}

// Usable reports whether a token has not expired.
func (t Token) Usable(now time.Time) bool { return now.Before(t.Expires) }
