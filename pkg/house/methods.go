// SPDX-License-Identifier: Apache-2.0

package house

import "slices"

// methods says who may call which method; a method that is not listed is
// refused. "*" stands for every service and the operator. A service is listed
// only where its code makes the call (test/rules); the operator may look, and
// enter containers, by hand.
var methods = map[string][]Service{
	"/sextant.node.v1.NodeService/Hello":                   {"*"},
	"/grpc.health.v1.Health/Check":                         {"*"},
	"/grpc.health.v1.Health/List":                          {"*"},
	"/grpc.health.v1.Health/Watch":                         {"*"},
	"/sextant.feed.v1.FeedService/Changes":                 {"*"}, // then MayRead, by feed
	"/sextant.config.v1.ConfigService/Token":               {Volume, PodWorker},
	"/sextant.config.v1.ConfigService/ServiceAccount":      {PodWorker},
	"/sextant.config.v1.ConfigService/Node":                {Resource},
	"/sextant.config.v1.ConfigService/ReviewToken":         {NodeAPI},
	"/sextant.config.v1.ConfigService/ReviewAccess":        {NodeAPI},
	"/sextant.config.v1.ConfigService/Certify":             {NodeAPI},
	"/sextant.config.v1.ConfigService/CertifyPod":          {Volume},
	"/sextant.podworker.v1.PodWorkerService/ContainerLogs": {NodeAPI, Operator},
	"/sextant.podworker.v1.PodWorkerService/Checkpoint":    {NodeAPI},
	"/sextant.pleg.v1.PlegService/Refresh":                 {PodWorker},
	"/sextant.volume.v1.VolumeService/Declare":             {PodWorker},
	"/sextant.volume.v1.VolumeService/Subpath":             {PodWorker},
	"/sextant.volume.v1.VolumeService/Withdraw":            {PodWorker},
	"/sextant.volume.v1.VolumeService/Stats":               {Resource, NodeAPI, Operator},
	"/sextant.resource.v1.ResourceService/Admit":           {PodWorker},
	"/sextant.resource.v1.ResourceService/Release":         {PodWorker},
	"/sextant.resource.v1.ResourceService/Resize":          {PodWorker},
	"/sextant.resource.v1.ResourceService/Settle":          {PodWorker},
	"/sextant.resource.v1.ResourceService/PreStart":        {PodWorker},
	"/sextant.resource.v1.ResourceService/Usage":           {NodeAPI, Operator},
	"/sextant.supervisor.v1.SupervisorService/EndExec":     {PodWorker},
	"/sextant.supervisor.v1.SupervisorService/EndPod":      {Resource},
	"/sextant.supervisor.v1.SupervisorService/WatchKills":  {Resource},
	"/sextant.supervisor.v1.ToolsService/MountNFS":         {Volume},
	"/sextant.supervisor.v1.ToolsService/StageDisk":        {Volume},
	"/sextant.supervisor.v1.ToolsService/UnstageDisk":      {Volume},
	"/runtime.v1.RuntimeService/Version":                   {Pleg, Operator},
	"/runtime.v1.RuntimeService/Status":                    {Pleg, Operator},
	"/runtime.v1.RuntimeService/RuntimeConfig":             {Pleg, Operator},
	"/runtime.v1.RuntimeService/ListPodSandbox":            {Pleg, Operator},
	"/runtime.v1.RuntimeService/PodSandboxStatus":          {Pleg, Operator},
	"/runtime.v1.RuntimeService/ListContainers":            {Pleg, Operator},
	"/runtime.v1.RuntimeService/ContainerStatus":           {Pleg, Operator},
	"/runtime.v1.RuntimeService/GetContainerEvents":        {Pleg, Operator},
	"/runtime.v1.RuntimeService/ExecSync":                  {Prober, NodeAPI, Operator},
	"/runtime.v1.RuntimeService/Exec":                      {NodeAPI, Operator},
	"/runtime.v1.RuntimeService/Attach":                    {NodeAPI, Operator},
	"/runtime.v1.RuntimeService/PortForward":               {NodeAPI, Operator},
	"/runtime.v1.RuntimeService/ContainerStats":            {Operator},
	"/runtime.v1.RuntimeService/ListContainerStats":        {Resource, NodeAPI, Operator},
	"/runtime.v1.RuntimeService/PodSandboxStats":           {Operator},
	"/runtime.v1.RuntimeService/ListPodSandboxStats":       {Operator},
	"/runtime.v1.RuntimeService/ListMetricDescriptors":     {Operator},
	"/runtime.v1.RuntimeService/ListPodSandboxMetrics":     {Operator},
	"/runtime.v1.ImageService/ListImages":                  {Operator},
	"/runtime.v1.ImageService/ImageStatus":                 {Operator},
	"/runtime.v1.ImageService/ImageFsInfo":                 {Resource, Operator},
}

// MayCall reports whether a peer may call a gRPC method by its full name.
func MayCall(peer Service, method string) bool {
	if peer != Operator && !IsService(peer) {
		return false
	}
	who := methods[method]
	return slices.Contains(who, "*") || slices.Contains(who, peer)
}

// Methods lists every method of the house with its callers.
func Methods() map[string][]Service {
	all := make(map[string][]Service, len(methods))
	for m, who := range methods {
		all[m] = slices.Clone(who)
	}
	return all
}
