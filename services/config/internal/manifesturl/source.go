// SPDX-License-Identifier: Apache-2.0

// Package manifesturl is the source of pods at a manifest URL: a Pod or a PodList,
// asked for at the start and each period.
//
// A URL that does not answer, or answers nonsense, leaves what it gave before;
// an empty answer means no pods. The source keeps no state beyond this process,
// and counts as heard only after it gave a usable answer.
package manifesturl

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/manifest"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/problem"
)

// timeout bounds one request, body included.
const timeout = 10 * time.Second

// Config of the source.
type Config struct {
	// URL is staticPodURL, Header is staticPodURLHeader.
	URL    string
	Header map[string][]string
	Node   string
	// Period is httpCheckFrequency.
	Period time.Duration
	// Changed is called after the listing changed, from the source's goroutine.
	Changed func()
	Log     *slog.Logger
}

// Source asks a URL. Make it with New.
type Source struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	listing merge.Listing
	sum     [sha256.Size]byte // of the last answer that was decoded
	decoded bool
	verdict string // what was wrong with it
}

// New makes a source that has read nothing yet.
func New(cfg Config) *Source {
	return &Source{
		cfg:     cfg,
		client:  &http.Client{Timeout: timeout},
		listing: merge.Listing{Source: pod.SourceHTTP},
	}
}

// Listing is what the source knows now.
func (s *Source) Listing() merge.Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listing
}

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Period)
	defer tick.Stop()
	for {
		data, err := s.get(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.update(data, err) {
			s.cfg.Changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Source) get(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("staticPodURL: %w", err)
	}
	req.Header = http.Header(s.cfg.Header).Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL may hold a password
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	data, err := file.Bounded(resp.Body, manifest.MaxSize, fmt.Errorf("more than %d MiB", manifest.MaxSize>>20))
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return data, nil
}

// update takes an answer in and reports whether anything changed.
func (s *Source) update(data []byte, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return s.fail(err.Error())
	}
	if sum := sha256.Sum256(data); !s.decoded || sum != s.sum {
		s.sum, s.decoded = sum, true
		entry := Decode(s.origin(), s.cfg.URL, s.cfg.Node, data)
		next := merge.Listing{Source: pod.SourceHTTP, Heard: true, Entries: []merge.Entry{entry}}
		switch {
		case entry.Problem != nil:
			next.Heard = s.listing.Heard
			next.Err = "answer is not usable: " + entry.Problem.Message
		case len(data) == 0:
			next.Err = "answer is empty: taken as no pods"
		}
		s.listing, s.verdict = next, next.Err
		return true
	}
	return s.fail(s.verdict)
}

func (s *Source) fail(text string) bool {
	changed := s.listing.Err != text
	s.listing.Err = text
	return changed
}

// origin is the URL without a password.
func (s *Source) origin() string {
	u, err := url.Parse(s.cfg.URL)
	if err != nil {
		return s.cfg.URL
	}
	return u.Redacted()
}

// Decode turns an answer into pods, with what has no effect in it, or one problem,
// whatever its bytes are. No bytes are no pods.
func Decode(origin, url, node string, data []byte) merge.Entry {
	if len(data) == 0 {
		return merge.Entry{Origin: origin}
	}
	pods, ignored, err := manifest.Decode(data, manifest.Source{Kind: pod.SourceHTTP, Path: url, NodeName: types.NodeName(node)})
	of := func(err error) *merge.Problem {
		if err == nil {
			return nil
		}
		p := problem.Of(url, err)
		p.Origin = origin
		return &p
	}
	return merge.Entry{Origin: origin, Pods: pods, Problem: of(err), Ignored: of(ignored)}
}
