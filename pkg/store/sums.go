// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"

	"go.etcd.io/bbolt"
)

// sumTable holds the checksum of every record of the others, and under stampKey
// the transaction that wrote last, so that a part of the file that is older than
// the rest is noticed. The table's sequence number, which bbolt keeps where the tree
// begins and not with the table, is the digest of all that: so a page of the table of
// which only some sectors are new, and a beginning of the tree that is older than the
// table, are noticed too, each of which may be whole in itself. Versions that know of
// no digest leave it as it is.
const (
	sumTable = "sums"
	stampKey = "transaction"
)

func sumKey(table, key string) string { return table + "/" + key }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(value []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(value, castagnoli))
}

// digest is of a set of entries: the sum of their hashes, so that an entry is added and
// taken away without a look at the others.
type digest uint64

func (d *digest) add(key string, sum []byte)    { *d += entryHash(key, sum) }
func (d *digest) remove(key string, sum []byte) { *d -= entryHash(key, sum) }

func entryHash(key string, sum []byte) digest {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(sum)
	return digest(h.Sum64())
}

// sums is the table of checksums within a transaction.
type sums struct {
	bucket *bbolt.Bucket
	digest digest
}

func openSums(tx *bbolt.Tx) (*sums, error) {
	bucket, err := tx.CreateBucketIfNotExists([]byte(sumTable))
	if err != nil {
		return nil, err
	}
	s := &sums{bucket, digest(bucket.Sequence())}
	if s.digest == 0 { // the table is new, or has none yet
		err = bucket.ForEach(func(key, sum []byte) error {
			s.digest.add(string(key), sum)
			return nil
		})
	}
	return s, err
}

// set keeps what is said under a key: the checksum of a record, or the transaction.
func (s *sums) set(key string, sum []byte) error {
	if was := s.bucket.Get([]byte(key)); was != nil {
		s.digest.remove(key, was)
	}
	s.digest.add(key, sum)
	return s.bucket.Put([]byte(key), sum)
}

func (s *sums) remove(key string) error {
	if was := s.bucket.Get([]byte(key)); was != nil {
		s.digest.remove(key, was)
	}
	return s.bucket.Delete([]byte(key))
}

// stamp ends a transaction: it says of which one the checksums are.
func (s *sums) stamp(tx *bbolt.Tx) error {
	if err := s.set(stampKey, binary.BigEndian.AppendUint64(nil, uint64(tx.ID()))); err != nil {
		return err
	}
	return s.bucket.SetSequence(uint64(s.digest))
}

// sumAll makes the checksums of all records.
func sumAll(tx *bbolt.Tx) error {
	s, err := openSums(tx)
	if err != nil {
		return err
	}
	err = tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
		if string(table) == sumTable {
			return nil
		}
		return b.ForEach(func(name, data []byte) error {
			return s.set(sumKey(string(table), string(name)), checksum(data))
		})
	})
	if err != nil {
		return err
	}
	return s.stamp(tx)
}

func digestOf(entries map[string][]byte) (d digest) {
	for key, sum := range entries {
		d.add(key, sum)
	}
	return d
}
