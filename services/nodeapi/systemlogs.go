package nodeapi

import "net/http"

// systemLogs answers /logs/: the node's log folder, and where it is switched on
// the node log query.
func (s *Service) systemLogs(w http.ResponseWriter, r *http.Request) {
	conf := s.current()
	if conf == nil || !is(conf.Kubelet.EnableSystemLogHandler, true) {
		disabled(systemLogOff)(w, r)
		return
	}
	s.kit.Log.InfoContext(r.Context(), "node logs read", "user", callerOf(r.Context()).Name, "path", r.URL.Path, "query", r.URL.RawQuery)
	if is(conf.Kubelet.EnableSystemLogQuery, false) {
		s.nodeLogs.Query(w, r)
		return
	}
	s.nodeLogs.Files(w, r)
}
