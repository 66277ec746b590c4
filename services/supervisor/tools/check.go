// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

var (
	// An option of mount(8): a word, or a word and a value. A comma would make two
	// options, and a quote would join this option with the next (libmount, optstr.c).
	option = pattern.Lazy(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(=[^,"\\\pZ\pC]*)?$`)
)

// The kernel accepts at most a page of options, and as much of a path.
const (
	mostOptions = 4096
	mostPath    = 4096
)

// foreign are options that make mount(8) do something other than mount an export.
var foreign = pattern.Lazy(`^(source|r?bind|move|remount|r?shared|r?slave|r?private|r?unbindable|loop|offset|sizelimit|encryption|helper|uhelper|verity\..*|[xX]-mount\..*)(=|$)`)

// plain reports whether a text has no character that starts another line or word.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func wrong(field, value, want string) error {
	return rpc.Invalid.Errorf("%s: %q: want %s", field, quiet.Cut(value, 256), want)
}

// folder reports whether a text is the name of one folder.
func folder(text string) bool {
	return text != "" && text != "." && text != ".." && len(text) <= 255 && !strings.Contains(text, "/") && plain(text)
}

func checkHost(field, host string) error {
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		// Names of hosts may have underscores.
		if strings.ContainsFunc(host, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
		}) || host == "" || host[0] == '-' {
			return wrong(field, host, "the name or the address of a host")
		}
	}
	return nil
}

func checkNFS(r *supervisorv1.MountNFSRequest) error {
	switch {
	case !folder(r.GetPodUid()):
		return wrong("pod_uid", r.GetPodUid(), "the name of one folder")
	case !folder(r.GetVolume()):
		return wrong("volume", r.GetVolume(), "the name of one folder")
	case len(r.GetPath()) > mostPath:
		return rpc.Invalid.Errorf("path: want at most %d bytes", mostPath)
	case !path.IsAbs(r.GetPath()) || !plain(r.GetPath()):
		return wrong("path", r.GetPath(), "an absolute path in one line")
	case r.GetServer() == "nfs" && strings.HasPrefix(r.GetPath(), "//"):
		return wrong("path", r.GetPath(), "no second slash: with this server it is a URL of another") // mount.nfs(8)
	}
	if err := checkOptions(r.GetOptions(), "an option of nfs(5)", foreign()); err != nil {
		return err
	}
	return checkHost("server", r.GetServer())
}

// checkOptions refuses a text that is not exactly one option, and options in refused.
func checkOptions(options []string, want string, refused ...*regexp.Regexp) error {
	length := 0
	for _, o := range options {
		if length += len(o) + 1; length > mostOptions {
			return rpc.Invalid.Errorf("options: want at most %d bytes together", mostOptions)
		}
		if !option().MatchString(o) {
			return wrong("options", o, "one option, name or name=value")
		}
		if slices.ContainsFunc(refused, func(r *regexp.Regexp) bool { return r.MatchString(o) }) {
			return wrong("options", o, want)
		}
	}
	return nil
}
