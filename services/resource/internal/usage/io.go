// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"strconv"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// devices collects what is reported device by device, in that order.
type devices struct {
	all []*resourcev1.DeviceIO
}

func (d *devices) named(majorMinor []byte) *resourcev1.DeviceIO {
	a, b, ok := bytes.Cut(majorMinor, []byte(":"))
	if !ok {
		return nil
	}
	major, err := strconv.ParseUint(string(a), 10, 64)
	if err != nil {
		return nil
	}
	minor, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return nil
	}
	for _, have := range d.all {
		if have.GetMajor() == major && have.GetMinor() == minor {
			return have
		}
	}
	fresh := &resourcev1.DeviceIO{Major: major, Minor: minor, Bytes: map[string]uint64{}}
	d.all = append(d.all, fresh)
	return fresh
}

// io1 reads what the throttle counts: it sees everything, whichever I/O scheduler
// there is.
func io1(src Source) []*resourcev1.DeviceIO {
	d := &devices{}
	each := func(file string, take func(device *resourcev1.DeviceIO, operation string, n uint64)) {
		text, _ := src.Read("blkio", file)
		for line := range bytes.Lines(text) {
			fields := bytes.Fields(line) // "8:0 Read 4096"; the last line is a sum
			if len(fields) != 3 {
				continue
			}
			device := d.named(fields[0])
			n, valid := parse(fields[2])
			if device != nil && valid {
				take(device, string(fields[1]), n)
			}
		}
	}
	each("blkio.throttle.io_service_bytes_recursive", func(device *resourcev1.DeviceIO, operation string, n uint64) {
		device.Bytes[operation] = n
	})
	each("blkio.throttle.io_serviced_recursive", func(device *resourcev1.DeviceIO, operation string, n uint64) {
		switch operation {
		case "Read":
			device.Reads = n
		case "Write":
			device.Writes = n
		}
	})
	return d.all
}

func io2(src Source) []*resourcev1.DeviceIO {
	text, ok := src.Read("io", "io.stat")
	if !ok {
		return nil
	}
	d := &devices{}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		device := d.named(fields[0])
		if device == nil {
			continue
		}
		for _, field := range fields[1:] {
			name, rest, _ := bytes.Cut(field, []byte("="))
			n, ok := parse(rest)
			if !ok {
				continue
			}
			switch string(name) {
			case "rbytes":
				device.Bytes["Read"] = n
			case "wbytes":
				device.Bytes["Write"] = n
			case "dbytes":
				device.Bytes["Discard"] = n
			case "rios":
				device.Reads = n
			case "wios":
				device.Writes = n
			}
		}
	}
	return d.all
}
