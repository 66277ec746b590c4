// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/services/config/internal/identity"
	"github.com/sextant-node/sextant/services/config/internal/keep"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/objects"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// Service is config.
type Service struct {
	kit     *service.Kit
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	beat    func()
	keeper  *keep.Keeper
	feeds   feeds

	configuration *configuration // in force
	report        reporter
	session       *session
	sources       *sources
	objects       *objects.Manager
	tokens        *token.Cache
	ahead         *ahead
	identity      *identity.Holder
	serving       *serving

	wake signal.Signal // merge soon
	// objectsMoved is set when objects may name others than before.
	objectsMoved atomic.Bool
	loop         loop
	// restoring is true within New: what is published then came from the store.
	restoring bool
}

// loop is the state of the merging goroutine; no other one touches it.
type loop struct {
	state     merge.State
	published merge.State
	// kept is the version of each pod that is in the store, or on its way.
	kept     map[types.UID]*merge.Pod
	problems map[problemKey]bool
	// readAt is, for each source, how far config.pods was when it
	// held no pod of it any more that the source does not have.
	readAt map[string]*feedv1.Revision
	direct map[types.UID]directRefs
	// former are the pods of an earlier life.
	former map[types.UID]bool
	needed needed
}

// needed is what besides the pods decides which objects are needed.
type needed struct{ keep, standalone bool }

// directRefs remembers what a pod names.
type directRefs struct {
	pod  *v1.Pod
	refs []refs.Ref
}

// problemKey tells one problem from another.
type problemKey struct{ origin, field, message string }
