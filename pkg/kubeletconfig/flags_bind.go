// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"sync"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// flagRow is one line of the flag table: everything known about one flag.
type flagRow struct {
	name string
	// field is the path of the KubeletConfiguration field behind the flag, or
	// empty for a flag-only setting. The field's support is the flag's.
	field string
	usage string
	bind  binder

	short string
	// current marks a flag with a field that is nevertheless not deprecated.
	current bool
	// deprecated is why a flag-only flag is going away, empty when it is not.
	deprecated string
	// level and reason are the support of a flag-only flag.
	level  Level
	reason string
}

// deprecation returns the text pflag prints after "has been deprecated,".
func (r flagRow) deprecation() string {
	switch {
	case r.deprecated != "":
		return r.deprecated
	case r.field != "" && !r.current:
		return "set " + r.field + " in the file given by --config"
	default:
		return ""
	}
}

// flagRows is the flag table, in the order of documentation.
func flagRows() []flagRow {
	var rows []flagRow
	for _, part := range [][]flagRow{nodeFlags, servingFlags, podFlags, resourceFlags, loggingFlags, legacyFlags} {
		rows = append(rows, part...)
	}
	return rows
}

// flagIndex is the flag table by name.
var flagIndex = sync.OnceValue(func() map[string]flagRow {
	m := map[string]flagRow{}
	for _, r := range flagRows() {
		m[r.name] = r
	}
	return m
})

// bind registers all flags on fs with t behind them.
func (t *target) bind(fs *pflag.FlagSet) {
	for _, r := range flagRows() {
		r.bind(fs, r, t)
	}
}

// binder registers one flag on fs with a place in t behind it.
type binder func(fs *pflag.FlagSet, r flagRow, t *target)

func str(at func(*target) *string) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.StringVarP(p, r.name, r.short, *p, r.usage)
	}
}

func boolean(at func(*target) *bool) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.BoolVarP(p, r.name, r.short, *p, r.usage)
	}
}

func num32(at func(*target) *int32) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.Int32VarP(p, r.name, r.short, *p, r.usage)
	}
}

func num64(at func(*target) *int64) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.Int64VarP(p, r.name, r.short, *p, r.usage)
	}
}

func dur(at func(*target) *time.Duration) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.DurationVarP(p, r.name, r.short, *p, r.usage)
	}
}

func list(at func(*target) *[]string) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) {
		p := at(t)
		fs.StringSliceVarP(p, r.name, r.short, *p, r.usage)
	}
}

func value(of func(*target) pflag.Value) binder {
	return func(fs *pflag.FlagSet, r flagRow, t *target) { fs.VarP(of(t), r.name, r.short, r.usage) }
}

// pairs takes "key=value,..."; given again it adds to its former value.
func pairs(at func(*target) *map[string]string) binder {
	return value(func(t *target) pflag.Value { return cliflag.NewMapStringString(at(t)) })
}

// pairsNoSplit takes one "key=value" each time; the value may hold commas.
func pairsNoSplit(at func(*target) *map[string]string) binder {
	return value(func(t *target) pflag.Value { return cliflag.NewMapStringStringNoSplit(at(t)) })
}

// thresholds takes "signal<value,...".
func thresholds(at func(*target) *map[string]string) binder {
	return value(func(t *target) pflag.Value { return cliflag.NewLangleSeparatedMapStringString(at(t)) })
}
