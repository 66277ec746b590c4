// SPDX-License-Identifier: Apache-2.0

package keyed

// Keys is how many keys somebody works on or waits for.
func (l *Limit) Keys() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}
