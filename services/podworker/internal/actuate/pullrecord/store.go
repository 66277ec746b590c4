// SPDX-License-Identifier: Apache-2.0

package pullrecord

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/file"
)

// Store keeps records below <state directory>/image_manager. Safe for concurrent
// use.
type Store struct {
	dir string

	mu      sync.Mutex
	pulling map[string]int // pulls under way by image
	// unknown are images that may have been pulled with credentials that are not known:
	// the record was not written, or the process was killed before. Their intent stays
	// until a pull is recorded: without it the image would count as preloaded.
	unknown map[string]bool
}

// NewStore makes a store; its folders are made when first needed.
func NewStore(dir string) *Store {
	return &Store{dir: dir, pulling: map[string]int{}, unknown: map[string]bool{}}
}

func (s *Store) path(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(s.dir, kind, "sha256-"+hex.EncodeToString(sum[:]))
}

// Folders of the store.
const (
	pullingDir = "pulling"
	pulledDir  = "pulled"
)

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: kind}
}

// Lookup reads what is known of a present image: its record, nil for none, and
// whether a pull of it began that was never recorded.
func (s *Store) Lookup(image, ref string) (record *kubeletv1beta1.ImagePulledRecord, intent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if record, err = s.read(ref); err != nil || record != nil {
		return record, false, err
	}
	if s.pulling[image] > 0 {
		return nil, true, nil
	}
	_, err = os.Stat(s.path(pullingDir, image))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return nil, err == nil, err
}

func (s *Store) read(ref string) (*kubeletv1beta1.ImagePulledRecord, error) {
	raw, err := os.ReadFile(s.path(pulledDir, ref))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, syscall.EISDIR) {
		return nil, err
	}
	record := &kubeletv1beta1.ImagePulledRecord{}
	if json.Unmarshal(raw, record) == nil {
		return record, nil
	}
	// Damaged: it was pulled, with unknown credentials.
	return &kubeletv1beta1.ImagePulledRecord{ImageRef: ref}, nil
}

// Begin records that an image is about to be pulled. Done or Failed must follow.
func (s *Store) Begin(image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.path(pullingDir, image)); err == nil && s.pulling[image] == 0 {
		s.unknown[image] = true // of a former life
	}
	if err := s.write(s.path(pullingDir, image), kubeletv1beta1.ImagePullIntent{TypeMeta: meta("ImagePullIntent"), Image: image}); err != nil {
		return fmt.Errorf("record image pull intent: %w", err)
	}
	s.pulling[image]++
	return nil
}

// Done records what an image was pulled with, and takes the intent back.
func (s *Store) Done(image, ref string, used kubeletv1beta1.ImagePullCredentials, now time.Time) error {
	err := s.Learn(image, ref, used, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown[image] = err != nil; err != nil {
		return errors.Join(err, s.over(image))
	}
	return s.over(image)
}

// Learn adds credentials to an image's record.
func (s *Store) Learn(image, ref string, used kubeletv1beta1.ImagePullCredentials, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, err := s.read(ref)
	if err != nil {
		return fmt.Errorf("record image pull: %w", err)
	}
	if record == nil {
		record = &kubeletv1beta1.ImagePulledRecord{ImageRef: ref}
	}
	merged, changed := merge(record.CredentialMapping[Name(image)], used)
	if !changed {
		return nil
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletv1beta1.ImagePullCredentials{}
	}
	record.TypeMeta, record.LastUpdatedTime = meta("ImagePulledRecord"), metav1.NewTime(now)
	record.CredentialMapping[Name(image)] = merged
	if err := s.write(s.path(pulledDir, ref), record); err != nil {
		return fmt.Errorf("record image pull: %w", err)
	}
	return nil
}

// Failed takes the intent of one pull back.
func (s *Store) Failed(image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over(image)
}

// over counts a pull as over and takes the intent back with the last one, unless it
// has to stay; callers hold mu.
func (s *Store) over(image string) error {
	if s.pulling[image]--; s.pulling[image] > 0 {
		return nil
	}
	delete(s.pulling, image)
	if s.unknown[image] {
		return nil
	}
	delete(s.unknown, image)
	if err := file.Remove(s.path(pullingDir, image)); err != nil {
		return fmt.Errorf("remove image pull intent: %w", err)
	}
	return nil
}

// Prune removes the records, written before a time, of images that are gone.
func (s *Store) Prune(present map[string]bool, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(s.dir, pulledDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for ref := range present {
		keep[filepath.Base(s.path(pulledDir, ref))] = true
	}
	var failed error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || keep[e.Name()] || !strings.HasPrefix(e.Name(), "sha256-") || info.ModTime().After(before) {
			continue
		}
		failed = errors.Join(failed, os.Remove(filepath.Join(s.dir, pulledDir, e.Name())))
	}
	return failed
}

// Count says how many intents and records are on the disk.
func (s *Store) Count() (intents, records int) {
	count := func(kind string) (n int) {
		entries, err := os.ReadDir(filepath.Join(s.dir, kind))
		if err != nil {
			return 0 // not made yet
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "sha256-") && !strings.HasSuffix(e.Name(), file.Half) {
				n++
			}
		}
		return n
	}
	return count(pullingDir), count(pulledDir)
}

// write makes a file whole or not at all.
func (s *Store) write(path string, content any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return file.Replace(path, raw, 0o600)
}
