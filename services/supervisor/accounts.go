// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/sextant-node/sextant/pkg/house"
)

// AccountName is the name of the account that the package makes for a service
// (deploy/package/sysusers.conf).
func AccountName(s house.Service) string { return "sextant-" + string(s) }

// LookUpAccounts finds the accounts the package made.
func LookUpAccounts() (map[house.Service]Account, error) {
	accounts := map[house.Service]Account{}
	var missing []string
	for _, s := range house.Services() {
		found, err := user.Lookup(AccountName(s))
		if unknown := user.UnknownUserError(""); errors.As(err, &unknown) {
			missing = append(missing, AccountName(s))
			continue
		}
		if err != nil {
			return nil, err
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: uid %q: %w", found.Username, found.Uid, err)
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: gid %q: %w", found.Username, found.Gid, err)
		}
		accounts[s] = Account{UID: uint32(uid), GID: uint32(gid)}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("missing: %s; the package makes them, with systemd-sysusers sextant.conf", strings.Join(missing, ", "))
	}
	return accounts, nil
}
