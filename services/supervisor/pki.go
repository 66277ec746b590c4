// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/pkg/file"
)

// publishPeriod is how often the supervisor checks whether the kubeconfig has to be
// written. kubeadm waits for it.
const publishPeriod = time.Second

// pairFile is where config keeps the client certificate and its key.
func pairFile(certDir string) string { return filepath.Join(certDir, "kubelet-client-current.pem") }

// search is the right to pass through a folder. Members of the group are not others:
// podworker, which is in root's for the runtime's socket, needs that of the group.
const search = fs.FileMode(0o011)

// traversable lets the services pass through folders that a kubelet made for root
// alone, without listing them.
func traversable(dirs ...string) error {
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&search == search {
			continue
		}
		if err := os.Chmod(dir, info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid)|search); err != nil {
			return err
		}
	}
	return nil
}

// PublishKubeconfig writes the node's kubeconfig after a TLS bootstrap, as the kubelet
// does: it names the file with the certificate. config, which requested the
// certificate, has no right to write there. A kubeconfig that works is left alone.
func (p *Plan) PublishKubeconfig(now time.Time) (written bool, err error) {
	if p.Bootstrap == "" || p.KubeConfig == "" {
		return false, nil
	}
	if _, err := os.Stat(pairFile(p.CertDir)); errors.Is(err, fs.ErrNotExist) {
		return false, nil // not yet
	}
	if have, _, err := credential.Load(p.KubeConfig); err == nil {
		leaf := have.Leaf()
		switch {
		case leaf == nil && !have.IsAnonymous(), have.CertificateFile() == pairFile(p.CertDir), leaf != nil && now.Before(leaf.NotAfter):
			return false, nil
		}
	}
	bootstrap, _, err := credential.Load(p.Bootstrap)
	if err != nil {
		return false, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	data, err := bootstrap.Published(pairFile(p.CertDir))
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(p.KubeConfig), 0o755); err != nil {
		return false, err
	}
	return true, file.Replace(p.KubeConfig, data, 0o600)
}

// keepKubeconfig publishes the kubeconfig when there is something to publish.
func (k *keeper) keepKubeconfig(ctx context.Context) error {
	tick := time.NewTicker(publishPeriod)
	defer tick.Stop()
	last := ""
	for {
		written, err := k.PublishKubeconfig(time.Now())
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			k.log.Error("kubeconfig not written", "error", last)
		case written:
			last = ""
			k.log.Info("kubeconfig written", "path", k.KubeConfig)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
