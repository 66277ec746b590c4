package nodeapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"

	"github.com/sextant-node/sextant/pkg/credential"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/serving"
)

// Waits of a request for a serving certificate.
const (
	// askTimeout bounds one question to config.
	askTimeout = 20 * time.Second
	// pollFirst is how often a request is asked about in its first minute, pollLater
	// how often from then on.
	pollFirst, pollLater = time.Second, 10 * time.Second
	// afterDenial is the wait after a request that somebody said no to.
	afterDenial = 5 * time.Minute
)

// requester has the serving certificate from the API server, by way of config.
// The key is made here, and seen by nobody else.
type requester struct {
	s       *Service
	dir     string // of the certificates
	pending *pending
	// issued is the last certificate, issuedAt when it came, doubted whether it
	// was expired then.
	issued   *x509.Certificate
	issuedAt time.Time
	doubted  bool
	again    time.Time
	said     string
}

// pending is a request under way. It is kept in a file, so that it goes on after
// a restart.
type pending struct {
	serving.Request
	key, csr []byte // PEM
}

// step goes one step on: the certificate there is, and when to look again.
func (r *requester) step(ctx context.Context, conf *kubeconf.Config) (*tls.Certificate, time.Duration, error) {
	if r.dir != conf.Node.CertDir {
		r.dir, r.pending = conf.Node.CertDir, r.restore()
	}
	files, err := certificate.NewFileStoreWithLogger(logr.Discard(), "kubelet-server", r.dir, r.dir, "", "")
	if err != nil {
		return nil, relisten, fmt.Errorf("serving certificate: %w", err)
	}
	have, err := files.Current()
	var none *certificate.NoCertKeyError
	if err != nil && !errors.As(err, &none) {
		r.s.kit.Log.Warn("serving certificate not read", "error", err.Error())
	}
	now := r.s.now()
	facts := serving.Facts{Want: r.names()}
	if have != nil {
		facts.Have = &serving.Certificate{Life: credential.LifeOf(have.Leaf), Names: namesIn(have.Leaf)}
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
		return have, relisten, fmt.Errorf("serving certificate: the node's addresses: %w", errWaiting)
	case !plan.Ask:
		return have, relisten, nil
	case r.pending == nil && now.Before(r.again) && r.again.Sub(now) <= afterDenial:
		return have, relisten, fmt.Errorf("serving certificate: %s", r.said)
	}
	next, wait, err := r.ask(ctx, files, conf, facts, have, now)
	if err != nil {
		err = fmt.Errorf("serving certificate: %s: %w", plan.Reason, err)
		if have != nil && now.Before(have.Leaf.NotAfter) && errors.Is(err, errWaiting) {
			err = nil // the former one serves
		}
	}
	return next, wait, err
}

// ask asks config how far the request is, and makes one if there is none.
func (r *requester) ask(ctx context.Context, files certificate.FileStore, conf *kubeconf.Config, facts serving.Facts, have *tls.Certificate, now time.Time) (*tls.Certificate, time.Duration, error) {
	if r.pending == nil {
		p, err := newPending(conf.Node.Name, facts.Want, now)
		if err != nil {
			return have, relisten, err
		}
		if err := r.keep(p); err != nil { // a restart will ask anew
			r.s.kit.Log.Warn("request for a serving certificate not kept", "error", err.Error())
		}
		r.pending = p
	}
	wait := pollFirst
	if now.Sub(r.pending.Since) > time.Minute {
		wait = pollLater
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := r.s.config.Certify(ctx, &configv1.CertifyRequest{Request: r.pending.csr})
	if err != nil {
		r.s.shown.renewErrors.Inc()
		return have, relisten, err
	}
	switch answer.GetState() {
	case configv1.CertifyState_CERTIFY_STATE_ISSUED:
	case configv1.CertifyState_CERTIFY_STATE_DENIED:
		r.s.shown.renewErrors.Inc()
		r.drop()
		r.again, r.said = now.Add(afterDenial), answer.GetName()+" was refused: "+answer.GetMessage()
		return have, relisten, errors.New(r.said)
	default:
		return have, wait, fmt.Errorf("%s %s: %w", answer.GetName(), answer.GetMessage(), errWaiting)
	}
	next, err := files.Update(answer.GetCertificate(), r.pending.key)
	if err != nil {
		return have, relisten, err
	}
	r.issued, r.issuedAt, r.doubted = next.Leaf, now, !now.Before(next.Leaf.NotAfter)
	if have != nil {
		r.s.shown.rotated.Observe(now.Sub(have.Leaf.NotBefore).Seconds())
	}
	r.drop()
	return next, relisten, nil
}

// names are the node's, as status renders them.
func (r *requester) names() serving.Names {
	report, ok := r.s.node.Get(nodeItem)
	if !ok {
		return serving.Names{}
	}
	status := v1.NodeStatus{}
	if err := status.Unmarshal(report.GetStatus()); err != nil {
		return serving.Names{}
	}
	return serving.NamesOf(status.Addresses)
}

func namesIn(leaf *x509.Certificate) (n serving.Names) {
	n.DNS = leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		n.IPs = append(n.IPs, ip.String())
	}
	return n
}

func newPending(node string, names serving.Names, now time.Time) (*pending, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: names.DNS,
	}
	for _, ip := range names.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	csr, err := cert.MakeCSRFromTemplate(key, template)
	if err != nil {
		return nil, err
	}
	return &pending{Request: serving.Request{Names: names, Since: now}, key: keyPEM, csr: csr}, nil
}

func (r *requester) file() string { return filepath.Join(r.s.kit.StateDir(), "serving.request") }

// keep writes the request down before it is made.
func (r *requester) keep(p *pending) error {
	data := append(append([]byte{}, p.key...), p.csr...)
	return errors.Join(os.MkdirAll(r.s.kit.StateDir(), 0o700), file.Replace(r.file(), data, 0o600))
}

// restore reads the request an earlier process made; nil if there is none that
// can go on.
func (r *requester) restore() *pending {
	info, err := os.Stat(r.file())
	if err != nil {
		return nil
	}
	data, err := os.ReadFile(r.file())
	if err != nil {
		return nil
	}
	key, rest := pem.Decode(data)
	block, _ := pem.Decode(rest)
	if key == nil || block == nil {
		return nil
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	p := &pending{key: pem.EncodeToMemory(key), csr: pem.EncodeToMemory(block)}
	p.Since, p.DNS = info.ModTime(), csr.DNSNames
	for _, ip := range csr.IPAddresses {
		p.IPs = append(p.IPs, ip.String())
	}
	return p
}

// drop forgets the request under way.
func (r *requester) drop() {
	r.pending = nil
	if err := os.Remove(r.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.s.kit.Log.Warn("request for a serving certificate not forgotten", "error", err.Error())
	}
}
