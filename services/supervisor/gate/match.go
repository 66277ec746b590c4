// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"strings"
)

// mostRule bounds a match rule, in bytes.
const mostRule = 1 << 10

// listens judges AddMatch: a client may receive the signals of one interface, and no
// messages to others.
func listens(m *Message, iface string) error {
	if err := m.has("s"); err != nil {
		return err
	}
	rule := m.Body[0].(string)
	if len(rule) > mostRule {
		return fmt.Errorf("listening by a rule of %d bytes", len(rule))
	}
	of := ""
	for part := range strings.SplitSeq(rule, ",") {
		key, value, _ := strings.Cut(strings.TrimLeft(part, " "), "=")
		name := strings.TrimSuffix(strings.TrimPrefix(value, "'"), "'")
		known := value == "'"+name+"'"
		switch key {
		case "type":
			known = known && name == "signal"
		case "interface":
			known, of = known && isName(name) && of == "", name
		case "sender", "member":
			known = known && isName(name)
		case "path":
			known = known && strings.HasPrefix(name, "/") && (name == "/" || isName(strings.ReplaceAll(name[1:], "/", ".")))
		default:
			known = false
		}
		if !known {
			return fmt.Errorf("listening for %s", quoted(rule))
		}
	}
	if of != iface {
		return fmt.Errorf("listening for %s", quoted(rule))
	}
	return nil
}
