// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
)

// The layout of a bbolt file, in the byte order of the machine: pages of one size,
// each with a header {id u64, flags u16, count u16, overflow u32}. Pages 0 and 1
// hold the two heads, of which the newer one counts; the others are branches and
// leaves of the trees of buckets, and the list of free pages.
const (
	pageHeader  = 16
	element     = 16 // of a branch {pos, ksize u32, page u64}, of a leaf {flags, pos, ksize, vsize u32}
	bucketSize  = 16 // {root page u64, sequence u64}
	headSize    = 64
	headMagic   = 0xED0CDAED
	headVersion = 2
	branchPage  = 0x01
	leafPage    = 0x02
	freePage    = 0x10
	bucketEntry = 0x01
	noFreelist  = math.MaxUint64
)

var order = binary.NativeEndian

// image is what a file holds. bbolt trusts its pages, and a damaged one can end
// the process; so every page is looked at here before bbolt sees the file.
type image struct {
	// records that are proven whole, by table and key.
	records map[string]map[string][]byte
	// damage is what is wrong with the file: the first few faults, of as many.
	damage []error
	faults int

	data []byte
	size uint64 // of a page
	head head
	seen map[uint64]bool
}

// head is what a head says of the file.
type head struct{ root, freelist, pages, tx uint64 }

// readImage reads a file. It never fails: damaged records are left out and reported.
func readImage(data []byte) *image {
	m := newImage(data)
	defer func() {
		if p := recover(); p != nil { // not expected: every access is checked
			m.damaged("damaged: %v", p)
		}
	}()
	m.read()
	return m
}

func newImage(data []byte) *image {
	return &image{records: map[string]map[string][]byte{}, data: data, seen: map[uint64]bool{0: true, 1: true}}
}

func (m *image) read() {
	if !m.readHeads() {
		return
	}
	tables := map[string][]byte{}
	m.walk(m.head.root, nil, nil, func(flags uint32, key, value []byte) {
		if flags != bucketEntry {
			m.damaged("table %q is none", key)
			return
		}
		tables[string(key)] = value
	})
	for name, bucket := range tables {
		m.records[name] = map[string][]byte{}
		m.walkTable(bucket, func(flags uint32, key, value []byte) {
			if flags != 0 {
				m.damaged("table %s: key %q is no record", name, key)
				return
			}
			m.records[name][string(key)] = value
		})
	}
	m.checkFree()
	m.checkSums(tables[sumTable])
}

// mostFaults is how many faults are reported one by one.
const mostFaults = 5

func (m *image) damaged(format string, args ...any) {
	if m.faults++; m.faults <= mostFaults {
		m.damage = append(m.damage, fmt.Errorf(format, args...))
	}
}

// cause joins what is wrong.
func (m *image) cause() error {
	if more := m.faults - len(m.damage); more > 0 {
		return errors.Join(append(slices.Clone(m.damage), fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(m.damage...)
}

// readHeads finds the page size and the head that counts.
func (m *image) readHeads() bool {
	first, size, firstErr := parseHead(m.data, 0)
	if firstErr != nil {
		for size = 1024; size <= 64<<10; size *= 2 {
			if _, said, err := parseHead(m.data, size); err == nil && said == size {
				break
			}
		}
	}
	second, said, secondErr := parseHead(m.data, size)
	if secondErr == nil && said != size {
		secondErr = fmt.Errorf("page size %d beside %d", said, size)
	}
	switch {
	case firstErr != nil && secondErr != nil:
		m.damaged("no head: %w; %w", firstErr, secondErr)
		return false
	case firstErr != nil:
		m.damaged("first head: %w", firstErr)
		m.head = second
	case secondErr != nil:
		m.damaged("second head: %w", secondErr)
		m.head = first
	default:
		if m.head = first; second.tx > first.tx {
			m.head = second
		}
	}
	m.size = size
	if whole := uint64(len(m.data)) / size; m.head.pages > whole {
		m.damaged("the file has %d pages of %d", whole, m.head.pages)
		m.head.pages = whole
	}
	return true
}

func parseHead(data []byte, page uint64) (h head, size uint64, err error) {
	from := page + pageHeader
	if from+headSize > uint64(len(data)) {
		return h, 0, errors.New("the file is too short")
	}
	b := data[from : from+headSize]
	sum := fnv.New64a()
	sum.Write(b[:56])
	switch {
	case order.Uint32(b) != headMagic || order.Uint32(b[4:]) != headVersion:
		return h, 0, errors.New("not a state file")
	case order.Uint64(b[56:]) != sum.Sum64():
		return h, 0, errors.New("checksum of the head")
	}
	size = uint64(order.Uint32(b[8:]))
	if size < 512 || size > 64<<10 || size&(size-1) != 0 {
		return h, 0, fmt.Errorf("page size %d", size)
	}
	return head{root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), tx: order.Uint64(b[48:])}, size, nil
}

// page takes a page with what belongs to it; a page may be taken once.
func (m *image) page(id uint64) (body []byte, flags, count uint16, ok bool) {
	if id < 2 || id >= m.head.pages || (id+1)*m.size > uint64(len(m.data)) {
		m.damaged("page %d is not in the file", id)
		return nil, 0, 0, false
	}
	header := m.data[id*m.size:]
	end := id + uint64(order.Uint32(header[12:])) + 1
	if order.Uint64(header) != id || end > m.head.pages || end*m.size > uint64(len(m.data)) {
		m.damaged("page %d: its header", id)
		return nil, 0, 0, false
	}
	for i := id; i < end; i++ {
		if m.seen[i] {
			m.damaged("page %d is used twice", i)
			return nil, 0, 0, false
		}
		m.seen[i] = true
	}
	return m.data[id*m.size : end*m.size], order.Uint16(header[8:]), order.Uint16(header[10:]), true
}

// walk visits the leaves below a page; keys are at least low, and below high where
// there is one.
func (m *image) walk(id uint64, low, high []byte, visit func(flags uint32, key, value []byte)) {
	body, flags, count, ok := m.page(id)
	switch {
	case !ok:
	case flags == leafPage:
		m.leaves(id, body, count, low, high, visit)
	case flags == branchPage && count > 0:
		m.branches(id, body, count, low, high, visit)
	default:
		m.damaged("page %d is neither branch nor leaf", id)
	}
}

func (m *image) branches(id uint64, body []byte, count uint16, low, high []byte, visit func(flags uint32, key, value []byte)) {
	type branch struct {
		key  []byte
		page uint64
	}
	var all []branch
	end := uint64(0)
	for i := range uint64(count) {
		at := pageHeader + i*element
		if at+element > uint64(len(body)) {
			m.damaged("page %d: %d branches", id, count)
			break
		}
		pos, keys := order.Uint32(body[at:]), order.Uint32(body[at+4:])
		key, ok := part(body, at, pos, keys)
		if !ok || at+uint64(pos) < end || i > 0 && bytes.Compare(all[i-1].key, key) >= 0 {
			m.damaged("page %d: branch %d", id, i)
			break
		}
		end = at + uint64(pos) + uint64(keys)
		all = append(all, branch{key, order.Uint64(body[at+8:])})
	}
	for i, b := range all {
		from, to := low, high
		if i > 0 { // what is less than the first key is below the first branch
			from = b.key
		}
		if i+1 < len(all) {
			to = all[i+1].key
		}
		m.walk(b.page, from, to, visit)
	}
}

func (m *image) leaves(id uint64, body []byte, count uint16, low, high []byte, visit func(flags uint32, key, value []byte)) {
	var last []byte
	end := uint64(0) // of the record before: they do not overlap
	for i := range uint64(count) {
		at := pageHeader + i*element
		if at+element > uint64(len(body)) {
			m.damaged("page %d: %d records", id, count)
			return
		}
		pos, keys, values := order.Uint32(body[at+4:]), order.Uint32(body[at+8:]), order.Uint32(body[at+12:])
		key, ok := part(body, at, pos, keys)
		value, whole := part(body, at, pos+keys, values)
		switch {
		case !ok || !whole || uint64(pos)+uint64(keys) > math.MaxUint32 || at+uint64(pos) < end:
			m.damaged("page %d: record %d is not in it", id, i)
		case i > 0 && bytes.Compare(last, key) >= 0, bytes.Compare(key, low) < 0, high != nil && bytes.Compare(key, high) >= 0:
			m.damaged("page %d: record %d is out of order", id, i)
		default:
			end = at + uint64(pos) + uint64(keys) + uint64(values)
			visit(order.Uint32(body[at:]), key, value)
		}
		last = key
	}
}

// part is length bytes at pos from an element.
func part(body []byte, from uint64, pos, length uint32) ([]byte, bool) {
	start := from + uint64(pos)
	end := start + uint64(length)
	if end > uint64(len(body)) {
		return nil, false
	}
	return body[start:end:end], true
}

// walkTable visits the records of a bucket, which are on pages, or beside its
// entry where they are few.
func (m *image) walkTable(bucket []byte, visit func(flags uint32, key, value []byte)) {
	if len(bucket) < bucketSize {
		m.damaged("a table of %d bytes", len(bucket))
		return
	}
	if root := order.Uint64(bucket); root != 0 {
		m.walk(root, nil, nil, visit)
		return
	}
	page := bucket[bucketSize:]
	if len(page) < pageHeader || order.Uint16(page[8:]) != leafPage {
		m.damaged("a table without a page")
		return
	}
	m.leaves(0, page, order.Uint16(page[10:]), nil, nil, visit)
}

// checkFree holds the list of free pages against those in use: a page that is both
// would be overwritten, one that is neither was lost.
func (m *image) checkFree() {
	if m.head.freelist == noFreelist {
		return
	}
	body, flags, count, ok := m.page(m.head.freelist)
	if !ok {
		return
	}
	ids, n := body[pageHeader:], uint64(count)
	if count == math.MaxUint16 {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if flags != freePage || n > uint64(len(ids))/8 {
		m.damaged("the list of free pages")
		return
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id >= m.head.pages || m.seen[id] {
			m.damaged("page %d is free and used", id)
			continue
		}
		m.seen[id] = true
	}
	for id := range m.head.pages {
		if !m.seen[id] {
			m.damaged("page %d is neither free nor used", id)
			return
		}
	}
}

// checkSums keeps the records that are as they were written. Where the digest is another,
// each of them was written once, perhaps some transactions ago, and others may be missing.
func (m *image) checkSums(bucket []byte) {
	sums, ok := m.records[sumTable]
	if !ok {
		m.damaged("it has no checksums")
		m.records = nil // nothing proves them whole
		return
	}
	delete(m.records, sumTable)
	if stamp := sums[stampKey]; len(stamp) != 8 || binary.BigEndian.Uint64(stamp) != m.head.tx {
		m.damaged("the checksums are not of transaction %d", m.head.tx)
		m.records = nil // whole or not, they may be long out of date
		return
	}
	if want := order.Uint64(bucket[8:]); want != 0 && digest(want) != digestOf(sums) {
		m.damaged("the table of checksums is not that of transaction %d", m.head.tx)
	}
	delete(sums, stampKey)
	for table, records := range m.records {
		for key, value := range records {
			sum, ok := sums[sumKey(table, key)]
			if !ok || !bytes.Equal(sum, checksum(value)) {
				m.damaged("table %s: record %q is not as it was written", table, key)
				delete(records, key)
			}
			delete(sums, sumKey(table, key))
		}
	}
	for key := range sums {
		m.damaged("record %q is missing", key)
	}
}
