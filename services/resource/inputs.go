package resource

import (
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

// decodeNode decodes Nodes and keeps nothing of other objects.
func decodeNode(_ string, value []byte) (*v1.Node, error) {
	o := &configv1.Object{}
	if err := proto.Unmarshal(value, o); err != nil {
		return nil, err
	}
	if o.GetKind() != "Node" || len(o.GetObject()) == 0 {
		return nil, nil
	}
	n := &v1.Node{}
	return n, n.Unmarshal(o.GetObject())
}

// nodeObject is the node's own object in the API, or nil.
func (s *Service) nodeObject(name string) *v1.Node {
	n, ok := s.nodes.Get("Node//" + name)
	if !ok {
		return nil
	}
	return n
}

// objectsChanged looks again when a Node changed; other objects do not matter.
func (s *Service) objectsChanged(keys []string) {
	for _, key := range keys {
		if strings.HasPrefix(key, "Node/") {
			s.look()
			return
		}
	}
}
