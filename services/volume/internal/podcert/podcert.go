// SPDX-License-Identifier: Apache-2.0

// Package podcert has keys and certificates for the podCertificate sources of projected
// volumes (KEP-4317).
//
// It owns the keys, which no other process sees until they are in a volume, and how far
// each certificate is. It begins empty: after a restart a volume keeps the files that it
// has until a new certificate has come.
package podcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Source names one source of one volume of a pod.
type Source struct {
	UID    types.UID
	Volume string
	Index  int
}

// Request is what the signer is asked for.
type Request struct {
	Name   string // what an earlier answer said; empty for the first time
	PKCS10 []byte // DER
}

// Answer to a request: one of Chain and Refused, or neither as long as it waits.
type Answer struct {
	Name    string
	Chain   string // PEM, leaf first
	Refresh time.Time
	Refused string
}

// ErrGone says that an object that an earlier call made is gone.
var ErrGone = errors.New("the request is gone")

// ErrWait says that a certificate has not been issued yet.
var ErrWait = errors.New("the signer has not answered yet")

// Credential is a key and the chain that was issued for it, both PEM.
type Credential struct {
	Key, Chain []byte
	// Refresh is when to ask for another; Ends is when it is of no use any more.
	Refresh, Ends time.Time
}

// Keeper keeps credentials. Make it with New; safe for concurrent use, as long as one
// source is asked for by one goroutine at a time.
type Keeper struct {
	now func() time.Time

	mu  sync.Mutex
	all map[Source]*entry
}

// entry is one source's state: nothing, pending, or refused, each with or without a
// credential that serves meanwhile.
type entry struct {
	credential *Credential
	key        crypto.Signer // of the pending request
	request    Request
	refused    string
}

// New makes an empty keeper.
func New(now func() time.Time) *Keeper { return &Keeper{now: now, all: map[Source]*entry{}} }

// Drop forgets what a pod has.
func (k *Keeper) Drop(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for s := range k.all {
		if s.UID == uid {
			delete(k.all, s)
		}
	}
}

// poll is how soon a request is looked at again while an older credential serves.
const poll = 10 * time.Second

// Get is the credential of a source, and when to come again. keyType is the API's name;
// ask asks the signer, or looks how far it is. A refusal is for good: it is not asked for
// again (as upstream), but what was issued before serves to its end.
func (k *Keeper) Get(s Source, keyType string, ask func(Request) (Answer, error)) (*Credential, time.Time, error) {
	k.mu.Lock()
	e := k.all[s]
	if e == nil {
		e = &entry{}
		k.all[s] = e
	}
	k.mu.Unlock()
	now := k.now()
	if e.credential != nil && now.Before(e.credential.Refresh) {
		return e.credential, e.credential.Refresh, nil
	}
	err := e.advance(keyType, ask, now)
	switch {
	case err == nil:
		return e.credential, e.credential.Refresh, nil
	case e.credential != nil && now.Before(e.credential.Ends):
		again := now.Add(poll)
		if e.refused != "" {
			again = e.credential.Ends
		}
		return e.credential, again, nil
	}
	return nil, time.Time{}, err
}

// advance takes a source a step on; nil when its credential is new.
func (e *entry) advance(keyType string, ask func(Request) (Answer, error), now time.Time) error {
	if e.refused != "" {
		return errors.New(e.refused)
	}
	if e.key == nil {
		key, err := generate(keyType)
		if err != nil {
			return err
		}
		pkcs10, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			return fmt.Errorf("certificate request: %w", err)
		}
		e.key, e.request = key, Request{PKCS10: pkcs10}
	}
	answer, err := ask(e.request)
	if errors.Is(err, ErrGone) {
		e.key = nil // another, the next time
		return fmt.Errorf("%w: %w", ErrWait, err)
	}
	if err != nil {
		return err
	}
	e.request.Name = answer.Name
	switch {
	case answer.Refused != "":
		e.refused, e.key = answer.Refused, nil
		return errors.New(answer.Refused)
	case answer.Chain == "":
		return ErrWait
	}
	credential, err := issued(e.key, answer, now)
	e.key = nil
	if err != nil {
		return err
	}
	e.credential = credential
	return nil
}

// issued is what an answer makes of a key, if they belong together.
func issued(key crypto.Signer, a Answer, now time.Time) (*Credential, error) {
	c := &Credential{Refresh: a.Refresh}
	var leaf *x509.Certificate
	for rest := []byte(a.Chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if leaf == nil {
			var err error
			if leaf, err = x509.ParseCertificate(block.Bytes); err != nil {
				return nil, fmt.Errorf("certificate chain: %w", err)
			}
		}
		c.Chain = append(c.Chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
	}
	if leaf == nil {
		return nil, errors.New("certificate chain: there is no certificate")
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(public, leaf.RawSubjectPublicKeyInfo) {
		return nil, errors.New("certificate chain: the first certificate is for another key")
	}
	if c.Ends = leaf.NotAfter; !now.Before(c.Ends) {
		return nil, fmt.Errorf("certificate chain: the certificate ended at %s", c.Ends.UTC().Format(time.RFC3339))
	}
	if c.Refresh.IsZero() || !c.Refresh.Before(c.Ends) || !now.Before(c.Refresh) { // a hint that is of no use
		c.Refresh = now.Add(c.Ends.Sub(now) * 2 / 3)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return c, nil
}

func generate(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("keyType: unknown type %q", keyType)
}
