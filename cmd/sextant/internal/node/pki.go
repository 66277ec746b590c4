package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// publishPeriod is how often the supervisor looks whether the kubeconfig has to
// be written. kubeadm waits for it.
const publishPeriod = time.Second

// pairFile is where config keeps the client certificate and its key.
func (p *Plan) pairFile() string { return filepath.Join(p.CertDir, "kubelet-client-current.pem") }

// preparePKI lays out the certificate folder: config's, and open to nodeapi,
// who cannot touch config's files in it. What a kubelet left there is handed to
// the service that goes on with it.
func (p *Plan) preparePKI() error {
	if err := os.MkdirAll(p.CertDir, 0o755); err != nil {
		return err
	}
	config, nodeapi := p.account(house.Config), p.account(house.NodeAPI)
	if err := give(p.CertDir, Account{UID: config.UID, GID: nodeapi.GID}, os.ModeSticky|0o770); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.CertDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var owner Account
		switch name := e.Name(); {
		case strings.HasPrefix(name, "kubelet-client"):
			owner = config
		case strings.HasPrefix(name, "kubelet-server"), name == "kubelet.crt", name == "kubelet.key":
			owner = nodeapi
		default:
			continue
		}
		if err := os.Lchown(filepath.Join(p.CertDir, e.Name()), int(owner.UID), int(owner.GID)); err != nil {
			return err
		}
	}
	return nil
}

// traversable lets the services pass through folders that a kubelet made for
// root alone. It shows nothing of what is in them.
func traversable(dirs ...string) error {
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 != 0 {
			continue
		}
		if err := os.Chmod(dir, info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid)|0o001); err != nil {
			return err
		}
	}
	return nil
}

// PublishKubeconfig writes the node's kubeconfig after a TLS bootstrap, as the
// kubelet does: it names the file with the certificate. config, who asked for
// the certificate, has no right to write there. A kubeconfig that is of use is
// left alone.
func (p *Plan) PublishKubeconfig(now time.Time) (written bool, err error) {
	if p.Bootstrap == "" || p.KubeConfig == "" {
		return false, nil
	}
	if _, err := os.Stat(p.pairFile()); errors.Is(err, fs.ErrNotExist) {
		return false, nil // not yet
	}
	if have, _, err := credential.Load(p.KubeConfig); err == nil {
		leaf := have.Leaf()
		switch {
		case leaf == nil && !have.IsAnonymous(), have.CertificateFile() == p.pairFile(), leaf != nil && now.Before(leaf.NotAfter):
			return false, nil
		}
	}
	bootstrap, _, err := credential.Load(p.Bootstrap)
	if err != nil {
		return false, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	data, err := bootstrap.Published(p.pairFile())
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(p.KubeConfig), 0o755); err != nil {
		return false, err
	}
	return true, file.Replace(p.KubeConfig, data, 0o600)
}

// keepKubeconfig publishes the kubeconfig when there is something to publish.
func (p *Plan) keepKubeconfig(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(publishPeriod)
	defer tick.Stop()
	last := ""
	for {
		written, err := p.PublishKubeconfig(time.Now())
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Error("kubeconfig not written", "error", last)
		case written:
			last = ""
			log.Info("kubeconfig written", "path", p.KubeConfig)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
