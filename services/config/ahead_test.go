// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
)

const makesTokens = "create serviceaccounts"

// withTokens has a volume with a token as every pod has it, and one for an audience.
func withTokens(p *v1.Pod) {
	p.Spec.ServiceAccountName = "sa"
	p.Spec.Volumes = []v1.Volume{{Name: "api", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault"}},
		{DownwardAPI: &v1.DownwardAPIProjection{}},
	}}}}}
	p.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "api", MountPath: "/api"}}}}
}

// tokensOf are what volume asks for, for the pod that withTokens made.
func tokensOf(name, uid string) []*configv1.TokenRequest {
	return []*configv1.TokenRequest{
		{Namespace: "ns", ServiceAccount: "sa", PodName: name, PodUid: uid, Expiration: durationpb.New(3607 * time.Second)},
		{Namespace: "ns", ServiceAccount: "sa", PodName: name, PodUid: uid, Expiration: durationpb.New(time.Hour), Audiences: []string{"vault"}},
	}
}

// TestTokensAhead: the tokens of a pod that has just come are asked for before volume does,
// which gets these. Nothing is asked for a pod that had its tokens before, or is to go.
func TestTokensAhead(t *testing.T) {
	m, server := joined(t, "")
	server.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}})
	started := metav1.NewTime(time.Now())
	server.Put("pods", apiPod("runs", "u1", withTokens, func(p *v1.Pod) { p.Status.StartTime = &started }))
	server.Put("pods", apiPod("leaves", "u2", withTokens, func(p *v1.Pod) { p.DeletionTimestamp = &started }))
	server.Put("pods", apiPod("without", "u3"))
	m.start()
	m.wants("ns/leaves", "ns/runs", "ns/without")
	if got := server.Requests(makesTokens); got != 0 {
		t.Errorf("%d tokens were made for pods that need none", got)
	}
	server.Put("pods", apiPod("new", "u4", withTokens))
	m.until("both tokens", func() bool { return server.Requests(makesTokens) == 2 })
	for _, r := range tokensOf("new", "u4") {
		if _, err := m.client.Token(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if got := server.Requests(makesTokens); got != 2 {
		t.Errorf("%d tokens were made for a pod of two", got)
	}
}

// TestTokensOfMany: while the API server makes the tokens of one pod, those of many others
// are not asked for before their turns come.
func TestTokensOfMany(t *testing.T) {
	m, server := joined(t, "")
	server.Put("serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}})
	m.start()
	m.wants()
	release := server.Stall(makesTokens)
	defer release()
	names := []string{"ns/pod-0"}
	server.Put("pods", apiPod("pod-0", "u0", withTokens))
	m.until("the first token", func() bool { return server.Requests(makesTokens) == 1 })
	for i := 1; i < 20; i++ {
		name := fmt.Sprintf("pod-%d", i)
		names = append(names, "ns/"+name)
		server.Put("pods", apiPod(name, fmt.Sprintf("u%d", i), withTokens))
	}
	m.wants(names...)
	if got := server.Requests(makesTokens); got != 1 {
		t.Errorf("%d tokens are asked for at a time", got)
	}
	release()
	for i := range 20 {
		for _, r := range tokensOf(fmt.Sprintf("pod-%d", i), fmt.Sprintf("u%d", i)) {
			if _, err := m.client.Token(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
	if got := server.Requests(makesTokens); got != 40 {
		t.Errorf("%d tokens were made for 20 pods of two", got)
	}
}
