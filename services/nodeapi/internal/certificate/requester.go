// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/certificate"

	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/serving"
)

const (
	// askTimeout bounds one call of config.
	askTimeout = 20 * time.Second
	// pollFirst is how often config is asked in the first minute of a request, pollLater
	// how often after that.
	pollFirst, pollLater = time.Second, 10 * time.Second
	// afterDenial is the wait after a request that was denied.
	afterDenial = 5 * time.Minute
)

// requester gets the serving certificate from the API server, by way of config.
type requester struct {
	config  configv1.ConfigServiceClient
	node    *feed.Replica[*statusv1.NodeReport]
	state   string // folder of the request under way
	now     func() time.Time
	metrics *served
	log     *slog.Logger

	dir     string // of the certificates
	pending *pending
	// issued is the last certificate of this process, issuedAt when it came; doubted: it
	// was expired by then.
	issued   *x509.Certificate
	issuedAt time.Time
	doubted  bool
	// denied is why the last request was, which counts until retryAt.
	denied  string
	retryAt time.Time
}

// step goes one step on. It returns the certificate there is, and when to look again.
func (r *requester) step(ctx context.Context, conf *kubeletconfig.Config) (*tls.Certificate, time.Duration, error) {
	if dir := house.CertDir(conf.Node.CertDir, house.NodeAPI); r.dir != dir {
		r.dir, r.pending = dir, restore(r.file())
	}
	files, err := certificate.NewFileStoreWithLogger(logr.Discard(), "kubelet-server", r.dir, r.dir, "", "")
	if err != nil {
		return nil, period, fmt.Errorf("serving certificate: %w", err)
	}
	have, err := files.Current()
	var none *certificate.NoCertKeyError
	if err != nil && !errors.As(err, &none) {
		r.log.Warn("serving certificate not read", service.KeyError, err.Error())
	}
	now := r.now()
	facts := serving.Facts{Want: r.names()}
	if have != nil {
		facts.Have = &serving.Certificate{Life: credential.LifeOf(have.Leaf), Names: namesIn(have.Leaf.DNSNames, have.Leaf.IPAddresses)}
		if r.issued != nil && r.issued.Equal(have.Leaf) {
			facts.Have.Issued, facts.Have.Doubted = r.issuedAt, r.doubted
		}
	}
	if r.pending != nil {
		facts.Pending = &r.pending.Request
	}
	plan := serving.Decide(facts, now)
	if plan.Drop {
		r.drop()
	}
	switch {
	case plan.Reason != "" && !plan.Ask:
		return have, period, fmt.Errorf("serving certificate: the node's addresses: %w", ErrWaiting)
	case !plan.Ask:
		return have, period, nil
	case r.pending == nil && now.Before(r.retryAt) && r.retryAt.Sub(now) <= afterDenial:
		return have, period, fmt.Errorf("serving certificate: %s", r.denied)
	}
	next, wait, err := r.ask(ctx, files, conf.Node.Name, facts.Want, have, now)
	if err != nil {
		err = fmt.Errorf("serving certificate: %s: %w", plan.Reason, err)
		if have != nil && now.Before(have.Leaf.NotAfter) && errors.Is(err, ErrWaiting) {
			err = nil // the former one serves
		}
	}
	return next, wait, err
}

// ask asks config for the state of the request, and makes a request if there is none.
func (r *requester) ask(ctx context.Context, files certificate.FileStore, node string, want serving.Names, have *tls.Certificate, now time.Time) (*tls.Certificate, time.Duration, error) {
	if r.pending == nil {
		p, err := newPending(node, want, now)
		if err != nil {
			return have, period, err
		}
		if err := p.keep(r.file()); err != nil { // after a restart there is another request
			r.log.Warn("request for a serving certificate not kept", service.KeyError, err.Error())
		}
		r.pending = p
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := r.config.Certify(ctx, &configv1.CertifyRequest{Request: r.pending.csr})
	if err != nil {
		r.metrics.renewErrors.Inc()
		return have, period, err
	}
	switch answer.GetState() {
	case configv1.CertifyState_CERTIFY_STATE_ISSUED:
	case configv1.CertifyState_CERTIFY_STATE_DENIED:
		r.metrics.renewErrors.Inc()
		r.drop()
		r.retryAt, r.denied = now.Add(afterDenial), answer.GetName()+" was refused: "+answer.GetMessage()
		return have, period, errors.New(r.denied)
	default:
		wait := pollFirst
		if now.Sub(r.pending.Since) > time.Minute {
			wait = pollLater
		}
		return have, wait, fmt.Errorf("%s %s: %w", answer.GetName(), answer.GetMessage(), ErrWaiting)
	}
	next, err := files.Update(answer.GetCertificate(), r.pending.key)
	if err != nil {
		return have, period, err
	}
	r.issued, r.issuedAt, r.doubted = next.Leaf, now, !now.Before(next.Leaf.NotAfter)
	if have != nil {
		r.metrics.rotated.Observe(now.Sub(have.Leaf.NotBefore).Seconds())
	}
	r.drop()
	return next, period, nil
}

// names are those of the Node's addresses, none while they are not known.
func (r *requester) names() serving.Names {
	report, _ := r.node.Get("node")
	status := v1.NodeStatus{}
	if err := status.Unmarshal(report.GetStatus()); err != nil {
		return serving.Names{}
	}
	return serving.NamesOf(status.Addresses)
}

func (r *requester) file() string { return filepath.Join(r.state, "serving.request") }

// drop forgets the request under way.
func (r *requester) drop() {
	r.pending = nil
	if err := file.Remove(r.file()); err != nil {
		r.log.Warn("request for a serving certificate not removed", service.KeyError, err.Error())
	}
}
