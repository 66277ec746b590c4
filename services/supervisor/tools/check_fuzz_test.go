// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"net"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/test/fuzzing"
)

// mounting is what mount(8) makes of its arguments.
type mounting struct {
	fstype, source, target string
	options                []string
}

// mount8 reads arguments as mount(8) does: getopt(3), then the options one by one, as
// libmount tells them apart. Releases differ in whether a backslash takes a quote its
// meaning.
func mount8(t *testing.T, args []string, escapes bool) mounting {
	t.Helper()
	var m mounting
	var joined, rest []string
	for len(args) > 0 && len(rest) == 0 {
		switch arg := args[0]; {
		case arg == "--":
			rest = args[1:]
		case (arg == "-t" || arg == "-o") && len(args) > 1:
			if arg == "-t" {
				m.fstype = args[1]
			} else {
				joined = append(joined, args[1])
			}
			args = args[2:]
		default:
			t.Fatalf("mount(8) takes %q as an option, or as the source", arg)
		}
	}
	if len(rest) != 2 {
		t.Fatalf("%q: a source and a target are wanted", rest)
	}
	m.source, m.target = rest[0], rest[1]
	var option strings.Builder
	text, quoted := strings.Join(joined, ","), false
	for i := range len(text) {
		switch {
		case text[i] == '"' && (!escapes || i == 0 || text[i-1] != '\\'):
			quoted = !quoted
		case text[i] == ',' && !quoted:
			m.options = append(m.options, option.String())
			option.Reset()
			continue
		}
		option.WriteByte(text[i])
	}
	if text != "" && !quoted { // one without an end is left out
		m.options = append(m.options, option.String())
	}
	return m
}

// special are the options by which mount(8) does something else than to mount the source
// that it is given at the target, by its manual.
func special(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	lower := strings.ToLower(name)
	return slices.Contains([]string{
		"source", "bind", "rbind", "move", "remount", "shared", "rshared", "slave", "rslave", "private", "rprivate", "unbindable", "runbindable",
		"loop", "offset", "sizelimit", "encryption", "helper", "uhelper",
	}, name) || strings.HasPrefix(name, "verity.") || strings.HasPrefix(lower, "x-mount.")
}

// exportOf is what mount.nfs(8) takes for the server and the path.
func exportOf(source string) (server, path string) {
	if strings.HasPrefix(source, "nfs://") {
		if u, err := url.Parse(source); err == nil {
			return u.Hostname(), u.Path
		}
		return "", ""
	}
	if strings.HasPrefix(source, "[") {
		server, path, _ = strings.Cut(source[1:], "]:")
		return server, path
	}
	server, path, _ = strings.Cut(source, ":")
	return server, path
}

// judge reports whether mount(8) understands what was asked for.
func judge(t *testing.T, args, asked []string, fstype, target string) (source string) {
	t.Helper()
	for _, escapes := range []bool{false, true} {
		m := mount8(t, args, escapes)
		if !slices.Equal(m.options, asked) || m.fstype != fstype || m.target != target {
			t.Errorf("%q is understood as %+v", args, m)
		}
		if i := slices.IndexFunc(m.options, special); i >= 0 {
			t.Errorf("%q has a meaning of its own", m.options[i])
		}
		source = m.source
	}
	if tag, _, ok := strings.Cut(source, "="); ok && !strings.ContainsAny(tag, ":/") {
		t.Errorf("source %q is a tag", source)
	}
	return source
}

// compile has the patterns compiled, so that no input is charged with it.
func compile() {
	for _, p := range []func() *regexp.Regexp{option, foreign, otherDevice, iscsiName, iscsiRecord, worldwide, diskName} {
		p()
	}
}

var options = []string{
	"", "ro", "nfsvers=4.1,bind", "a=\"\nb=\"", "a=\\\"\nro", "bind", "loop=/dev/loop0", "x-mount.mkdir", "X-mount.idmap=b", "ro\nnoatime\nsec=krb5", "source=/dev/sda", "verity.hashdevice=/x",
	"-o", "--bind", "a b", "remount", "Bind", "x-systemd.automount", "journal_path=/dev/sda", "é=1", "a=\u2028",
}

// FuzzCheckNFS: what is taken for an export is one for mount(8) as well.
func FuzzCheckNFS(f *testing.F) {
	compile()
	for _, o := range options {
		f.Add("fs.example", "/data", o)
	}
	f.Add("nfs", "//fs.example/data", "")
	f.Add("fd00::1", "/", "")
	f.Add("[fd00::1]", "/a:b,c", "ro")
	f.Add("a,b", "/x", "")
	f.Add("LABEL=x", "/x", "")
	f.Add("-o", "/../x\n", "")
	f.Fuzz(func(t *testing.T, server, export, options string) {
		var asked []string
		if options != "" {
			asked = strings.Split(options, "\n")
		}
		r := nfs("u", "v", server, export, asked...)
		var err error
		fuzzing.Allocates(t, 1<<20+100*uint64(len(server)+len(export)+len(options)), func() {
			fuzzing.Spends(t, time.Second, func() { err = checkNFS(r) })
		})
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		source := judge(t, nfsArgs(r, "/target"), asked, "nfs", "/target")
		if host, path := exportOf(source); host != server || path != export {
			t.Errorf("%q of %q is understood as %q of %q", export, server, path, host)
		}
	})
}

// FuzzCheckDisk: what is taken for a disk has a folder of its own, below that of its kind,
// and is mounted there by mount(8), with the options asked for.
func FuzzCheckDisk(f *testing.F) {
	compile()
	for _, o := range options {
		f.Add("iqn.2026-01.example:store", "default", "10.0.0.1:3260", "50060e801049cfd1", "ext4", o, false)
	}
	f.Add("iqn.2026-01.example:../..", "..", "[fd00::1]:3260", "../x", "auto", "", false)
	f.Add("eui.0123456789abcdef", "a/b", "h:0", "..", "nfs", "", true)
	f.Add("iqn.2026-01.example:a*", "-m", "-x:1", "0x50060e801049cfd1", "", "", true)
	f.Fuzz(func(t *testing.T, target, iface, portal, name, fstype, options string, fc bool) {
		var asked []string
		if options != "" {
			asked = strings.Split(options, "\n")
		}
		disk := &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Iscsi{Iscsi: &supervisorv1.ISCSIDisk{Target: target, Interface: iface, Portals: []string{portal}}}}
		kind := "iscsi"
		if fc {
			disk, kind = &supervisorv1.NetworkDisk{Source: &supervisorv1.NetworkDisk_Fc{Fc: &supervisorv1.FCDisk{Wwids: []string{name}}}}, "fc"
		}
		r := &supervisorv1.StageDiskRequest{Disk: disk, FsType: fstype, Options: asked}
		var err error
		fuzzing.Allocates(t, 1<<20+200*uint64(len(target)+len(iface)+len(portal)+len(name)+len(fstype)+len(options)), func() {
			fuzzing.Spends(t, time.Second, func() { err = checkStage(r) })
		})
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		folder := stageFolder(disk)
		depth := map[string]int{"iscsi": 2, "fc": 1}[kind]
		below, ok := strings.CutPrefix(folder, "plugins/kubernetes.io/"+kind+"/")
		if !ok || !filepath.IsLocal(below) || path.Clean(below) != below || strings.Count(below, "/") != depth-1 || !plain(below) {
			t.Errorf("%+v has the folder %q", disk, folder)
		}
		if i := disk.GetIscsi(); i != nil {
			host, port, err := net.SplitHostPort(i.GetPortals()[0])
			if err != nil || host == "" || port == "0" || strings.HasPrefix(host, "-") || strings.ContainsAny(host, ",/ ") {
				t.Errorf("portal %q is %q, %q, %v", i.GetPortals()[0], host, port, err)
			}
			for _, word := range []string{i.GetTarget(), i.GetInterface()} {
				if word == "" || word[0] == '-' || strings.ContainsAny(word, "/*?,; \t\n") {
					t.Errorf("%q is no word for iscsiadm(8)", word)
				}
			}
		}
		if fstype == "" {
			fstype = "ext4"
		}
		mode := append(slices.Clone(asked), "ro")
		if source := judge(t, diskArgs("/dev/sdb", "/target", fstype, mode), mode, fstype, "/target"); source != "/dev/sdb" || !slices.Contains(fileSystems, fstype) {
			t.Errorf("%q is mounted as %q", source, fstype)
		}
	})
}

// FuzzCHAP: a record of iscsiadm's holds the credentials that were taken, and its other
// lines as they were.
func FuzzCHAP(f *testing.F) {
	record := "# BEGIN RECORD 2.1.8\nnode.name = iqn.x\nnode.session.auth.authmethod = None\nnode.session.auth.password = old\n# END RECORD\n"
	f.Add(record, "user", "secret")
	f.Add(record, "# END RECORD", "a = b")
	f.Add("", "x\ny = z", " x")
	f.Add("# END RECORD\n# END RECORD\n\n", "node.session.auth.username", "\x00")
	f.Fuzz(func(t *testing.T, record, user, password string) {
		c := &supervisorv1.CHAP{Username: user, Password: password}
		if checkCHAP("session", c) != nil {
			return
		}
		params := chapParams("node.session.auth", c)
		var got string
		fuzzing.Allocates(t, 1<<20+100*uint64(len(record)+len(user)+len(password)), func() {
			fuzzing.Spends(t, time.Second, func() { got = setParams(record, params) })
		})
		values := map[string][]string{}
		var others []string
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			if name, value, ok := strings.Cut(line, " = "); ok && params[name] != "" {
				values[name] = append(values[name], value)
			} else if line != "" {
				others = append(others, line)
			}
		}
		for name, value := range params {
			if !slices.Equal(values[name], []string{value}) {
				t.Errorf("%s is %q, want %q", name, values[name], value)
			}
		}
		var before []string
		for line := range strings.Lines(record) {
			line = strings.TrimSuffix(line, "\n")
			if name, _, ok := strings.Cut(line, " = "); line != "" && (!ok || params[name] == "") {
				before = append(before, line)
			}
		}
		if !slices.Equal(before, others) {
			t.Errorf("other lines were %q and are %q", before, others)
		}
	})
}
