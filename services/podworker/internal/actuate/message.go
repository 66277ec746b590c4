// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/wire"
)

// Bounds of a termination message.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)

// TerminationMessage is what an exited container left to say: the file behind
// its terminationMessagePath or, where its policy asks for it and it failed
// without a word, the end of its log. Empty for none. Where to look is in the
// container's own annotations and mounts. status.Message, the runtime's part, is
// not included.
func (a *Actuator) TerminationMessage(ctx context.Context, status *runtimeapi.ContainerStatus) string {
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return ""
	}
	info, err := pod.ParseContainer(status.GetLabels(), status.GetAnnotations())
	if errors.Is(err, pod.ErrNotOurs) {
		return ""
	}
	fallback := info.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError &&
		status.GetExitCode() != 0 && status.GetReason() != "ContainerCannotRun"
	message, err := fileMessage(status, info.TerminationMessagePath)
	switch {
	case err != nil:
		return wire.Text(err.Error())
	case message == "" && fallback:
		return logMessage(ctx, status.GetLogPath())
	}
	return message
}

func fileMessage(status *runtimeapi.ContainerStatus, inside string) (string, error) {
	if inside == "" {
		return "", nil
	}
	for _, m := range status.GetMounts() {
		if m.GetContainerPath() != path.Join("/", inside) {
			continue
		}
		content, err := readRegular(func(flags int) (*os.File, error) { return os.OpenFile(m.GetHostPath(), flags, 0) }, maxMessage)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("Error on reading termination log %s: %w", m.GetHostPath(), err)
		}
		return lastText(content, maxMessage), nil
	}
	return "", nil
}

var errNotRegular = errors.New("not a regular file")

// readRegular reads the last limit bytes of a regular file. A container could
// have put a link or a pipe there, to read the node's files or to hang us.
func readRegular(open func(flags int) (*os.File, error), limit int64) ([]byte, error) {
	f, err := open(os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

func logMessage(ctx context.Context, file string) string {
	lines := int64(maxMessageLines)
	var out tail
	if err := logs.ReadLogs(ctx, file, "", &logs.LogOptions{TailLines: &lines}, nil, &out, &out); err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return lastText(out.kept, maxMessageLog)
}

// tail keeps the last maxMessageLog bytes written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxMessageLog; over > 0 {
		t.kept = bytes.Clone(t.kept[over:])
	}
	return len(p), nil
}
