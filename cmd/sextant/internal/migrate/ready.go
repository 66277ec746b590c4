// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// Node is where a node can be looked at, whatever agent it has.
type Node struct {
	Name string
	// KubeConfig is empty for a node without an API server.
	KubeConfig string
	// Healthz is the URL of the agent's healthz, empty where it has none.
	Healthz string
	// Runtime is the endpoint of the container runtime.
	Runtime string
}

// Seen is what is known of a node at one moment.
type Seen struct {
	// Healthz is why the agent's healthz does not answer with 200.
	Healthz string `json:"healthz,omitempty"`
	// API is why the API server could not be asked; the rest is unknown then.
	API   string `json:"api,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	// Message of the condition Ready.
	Message string `json:"message,omitempty"`
	// Renewed is when the agent renewed the node's lease.
	Renewed time.Time `json:"renewed,omitzero"`
}

// Missing is what the node lacks after a change that began at a time, empty for nothing:
// its agent is healthy and, where the API server answered before, has renewed the lease,
// and the node is Ready if it was.
func Missing(before, now Seen, began time.Time) string {
	switch {
	case now.Healthz != "":
		return "healthz: " + now.Healthz
	case before.API != "":
		return ""
	case now.API != "":
		return "API server: " + now.API
	case !now.Renewed.After(began):
		return "the node's lease has not been renewed"
	case before.Ready && !now.Ready:
		return "the node is not Ready: " + now.Message
	}
	return ""
}

// patience is how long each question may take.
const patience = 5 * time.Second

// See looks at the node.
func (n Node) See(ctx context.Context) Seen {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := Seen{Healthz: n.healthz(ctx)}
	if n.KubeConfig == "" {
		s.API = "there is none"
		return s
	}
	if err := n.ask(ctx, &s); err != nil {
		s.API = err.Error()
	}
	return s
}

// direct asks the node itself, whatever proxy the environment names.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (n Node) healthz(ctx context.Context) string {
	if n.Healthz == "" {
		return ""
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Healthz, nil)
	if err != nil {
		return err.Error()
	}
	answer, err := direct.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // what came of it
		return fmt.Sprintf("%s: %s", answer.Status, text)
	}
	return ""
}

// ask asks the API server with the node's own credential.
func (n Node) ask(ctx context.Context, s *Seen) error {
	credential, err := clientcmd.BuildConfigFromFlags("", n.KubeConfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(credential)
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			s.Ready, s.Message = c.Status == v1.ConditionTrue, c.Message
		}
	}
	lease, err := client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // a node that has just joined
	}
	if err != nil {
		return err
	}
	if lease.Spec.RenewTime != nil {
		s.Renewed = lease.Spec.RenewTime.Time
	}
	return nil
}

// Containers are those that run, by id, with their names.
func (n Node) Containers(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: strings.TrimPrefix(n.Runtime, "unix://"), Timeout: patience})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, c := range list.GetContainers() {
		l := c.GetLabels()
		all[c.GetId()] = l["io.kubernetes.pod.namespace"] + "/" + l["io.kubernetes.pod.name"] + " " + c.GetMetadata().GetName()
	}
	return all, nil
}
