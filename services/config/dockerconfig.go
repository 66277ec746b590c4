// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

const (
	// dockerConfigPeriod is how often the file is read without a signal.
	dockerConfigPeriod = time.Minute
	// maxDockerConfig bounds it, in bytes, as the API server bounds a Secret.
	maxDockerConfig = 1 << 20
)

// dockerConfig reads the node's own docker configuration, with which images are pulled
// beside the secrets of their pods: podworker has no right to, for docker makes the file
// root's alone. It is not kept: the file outlives this process.
type dockerConfig struct {
	path string
	feed *feed.Owner[*configv1.Object]
	log  *slog.Logger
	said string // the last error
}

// watch publishes the file when it changes, until ctx ends.
func (d *dockerConfig) watch(ctx context.Context) error {
	return watch.Run(ctx, watch.Config{
		Paths: []string{d.path}, Period: dockerConfigPeriod, Log: d.log, Look: func() { d.publish(ctx) },
	})
}

func (d *dockerConfig) publish(ctx context.Context) {
	key := refs.Ref{Kind: refs.Secret, Name: house.DockerConfig}.Key()
	data, err := readDockerConfig(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		d.said = ""
		d.feed.Delete(ctx, key)
		return
	}
	item := &configv1.Object{Kind: refs.Secret, Name: house.DockerConfig}
	if err == nil {
		secret := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: data}}
		item.Object, err = secret.Marshal()
	}
	if err != nil {
		item.Error = err.Error()
	}
	if item.GetError() != d.said {
		if d.said = item.GetError(); d.said != "" {
			d.log.Error("the node's docker configuration is not read", service.KeyError, d.said)
		}
	}
	if _, err := d.feed.Set(ctx, key, item); err != nil {
		d.log.Error("the node's docker configuration is not published", service.KeyError, err.Error())
	}
}

func readDockerConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return file.Bounded(f, maxDockerConfig, fmt.Errorf("%s: longer than %d bytes", path, maxDockerConfig))
}
