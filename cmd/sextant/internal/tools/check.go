package tools

import (
	"net"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

var (
	// An option of mount(8): a word, or a word and a value. A comma would be two.
	option = pattern.Lazy(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(=[^,\pZ\pC]*)?$`)
)

// foreign are options that have mount(8) do something else than mount an export.
var foreign = pattern.Lazy(`^(r?bind|move|remount|r?shared|r?slave|r?private|r?unbindable|loop|offset|sizelimit|encryption|helper|uhelper|verity\..*|[xX]-mount\..*)(=|$)`)

// plain tells whether a text has nothing in it that starts another line or word.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func wrong(field, value, want string) error {
	return rpc.Invalid.Errorf("%s: %q: want %s", field, value, want)
}

// folder tells whether a text is the name of one folder.
func folder(text string) bool {
	return text != "" && text != "." && text != ".." && len(text) <= 255 && !strings.Contains(text, "/") && plain(text)
}

func checkHost(field, host string) error {
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		// Names of hosts may have underscores all the same.
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
	case !path.IsAbs(r.GetPath()) || !plain(r.GetPath()):
		return wrong("path", r.GetPath(), "an absolute path in one line")
	}
	for _, o := range r.GetOptions() {
		if !option().MatchString(o) {
			return wrong("options", o, "one option, name or name=value")
		}
		if foreign().MatchString(o) {
			return wrong("options", o, "an option of nfs(5)")
		}
	}
	return checkHost("server", r.GetServer())
}
