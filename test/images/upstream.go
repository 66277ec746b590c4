// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// DevicePlugin is upstream's device plugin for tests of nodes.
const DevicePlugin = "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"

// OfNodes are the images that upstream's e2e_node names and that can be made here.
var OfNodes = []string{
	"registry.k8s.io/e2e-test-images/agnhost:2.55", "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
	"registry.k8s.io/e2e-test-images/busybox:1.36.1-1", "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
	"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", "registry.k8s.io/e2e-test-images/nginx:1.15-4",
	"registry.k8s.io/e2e-test-images/nonewprivs:1.4", "registry.k8s.io/e2e-test-images/nonroot:1.5",
	"registry.k8s.io/pause:3.10.2", DevicePlugin,
}

// curl fetches the URL among its arguments, which is all that tests ask of it.
const curl = `#!/bin/sh
for a; do case $a in http*) url=$a ;; esac; done
exec wget -q -O - "$url"
`

// ip makes an interface of type bridge where tests ask for one of type dummy: not
// every kernel has those, and both need the same right.
const ip = `#!/bin/sh
for a; do
	shift
	[ "$a" = dummy ] && a=bridge
	set -- "$@" "$a"
done
exec /bin/ip "$@"
`

// nmeter says what time it is, to the millisecond, which is all that tests ask of
// it. Debian's busybox has none.
const nmeter = `#!/bin/bash
now=$EPOCHREALTIME
TZ=UTC printf '%(%H:%M:%S)T.%s\n' "${now%.*}" "$(printf %.3s "${now#*.}")"
`

// Upstream assembles an image that Kubernetes' own end-to-end tests name, from
// the programs in a directory (test/env/install.sh conformance) and the machine's
// busybox and bash. The error is ErrUnknown for one that cannot be made of these.
func (b Builder) Upstream(ctx context.Context, ref, programs string) (v1.Image, error) {
	name, _, _ := strings.Cut(ref[strings.LastIndexByte(ref, '/')+1:], ":")
	if name == "pause" {
		return b.Image(ctx, Pause)
	}
	files, err := shell(ctx)
	if err != nil {
		return nil, err
	}
	bash, err := exec.LookPath("bash-static")
	if err != nil {
		return nil, fmt.Errorf("needs a static bash (Debian: bash-static): %w", err)
	}
	files = append(append(base(), files...),
		file{path: "usr", dir: true, mode: 0o755}, file{path: "usr/local", dir: true, mode: 0o755}, file{path: "usr/local/bin", dir: true, mode: 0o755},
		program("usr/local/bin/nmeter", []byte(nmeter)))
	config := v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	add := func(path, source string, mode int64) error {
		bin, err := os.ReadFile(source)
		files = append(files, file{path: path, mode: mode, body: bin})
		return err
	}
	if err := add("bin/bash", bash, 0o755); err != nil {
		return nil, err
	}
	switch name {
	case "busybox":
		// Tests look for variables whose names no shell accepts: Debian's busybox
		// takes them out of the environment, bash passes them on. Others look for
		// the words in which /bin/sh complains.
		files = append(files, file{path: "usr/local/bin/sh", mode: 0o777, link: "/bin/bash"}, program("usr/local/bin/ip", []byte(ip)))
	case "glibc-dns-testing":
	case "nonroot":
		config.User = "1234"
	case "nonewprivs":
		config.Cmd = []string{"nnp"}
		err = add("usr/local/bin/nnp", filepath.Join(programs, "nonewprivs"), 0o6755)
	case "agnhost":
		// Tests look for the user and the group, and for a second name.
		files = append(files,
			file{path: "uploads", dir: true, mode: 0o755},
			file{path: "agnhost-2", mode: 0o777, link: "agnhost"},
			program("usr/local/bin/curl", []byte(curl)),
			file{path: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n")},
			file{path: "etc/group", mode: 0o644, body: []byte("root:x:0:\nnobody:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")})
		config.Entrypoint, config.Cmd = []string{"/agnhost"}, []string{"pause"}
		// Its servers show the certificate where tests ask for HTTPS.
		for _, name := range []string{"agnhost", "localhost.crt", "localhost.key"} {
			err = errors.Join(err, add(name, filepath.Join(programs, name), 0o755))
		}
	case "sample-device-plugin":
		config.Entrypoint, config.Cmd = []string{"/sampledeviceplugin", "-alsologtostderr"}, nil
		err = add("sampledeviceplugin", filepath.Join(programs, "sample-device-plugin"), 0o755)
	case "nginx":
		err = add("agnhost", filepath.Join(programs, "agnhost"), 0o755)
		config.Entrypoint, config.Cmd = []string{"/agnhost"}, []string{"netexec", "--http-port=80"}
	default:
		return nil, fmt.Errorf("image %s: %w", ref, ErrUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	return b.assemble(files, config)
}

// SaveUpstream is Save of an image that Upstream assembles.
func (b Builder) SaveUpstream(ctx context.Context, ref, programs, path string) error {
	img, err := b.Upstream(ctx, ref, programs)
	if err != nil {
		return err
	}
	return save(ref, img, path)
}
