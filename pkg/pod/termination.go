package pod

import (
	"bytes"

	v1 "k8s.io/api/core/v1"
)

// Limits of termination messages, in bytes and lines.
const (
	// MaxTerminationMessage is what is read of the file behind terminationMessagePath.
	MaxTerminationMessage = 4096
	// MaxTerminationLog and MaxTerminationLogLines bound what stands in from the log.
	MaxTerminationLog      = 2048
	MaxTerminationLogLines = 80
)

// TailTerminationMessage is the part of a termination message file that counts: its end.
func TailTerminationMessage(content []byte) []byte {
	return content[max(0, len(content)-MaxTerminationMessage):]
}

// TailTerminationLog is the end of a container's output (without the log's timestamps)
// that stands in for a message.
func TailTerminationLog(output []byte) []byte {
	start := len(output)
	for range MaxTerminationLogLines {
		// The newline that ends the line before this one.
		i := bytes.LastIndexByte(output[:max(0, start-1)], '\n')
		start = i + 1
		if i < 0 {
			break
		}
	}
	output = output[start:]
	return output[max(0, len(output)-MaxTerminationLog):]
}

// FallbackToLogs reports whether the end of the log stands in for a termination message:
// policy FallbackToLogsOnError, a failure, an empty message file, and a container that
// could be started at all.
func FallbackToLogs(info ContainerInfo, exitCode int32, reason string, own []byte) bool {
	return info.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError &&
		exitCode != 0 && reason != "ContainerCannotRun" && len(own) == 0
}

// JoinTerminationMessage is the message of a terminated state: the runtime's, then the
// container's own.
func JoinTerminationMessage(runtime, own string) string {
	if runtime != "" && own != "" {
		return runtime + ": " + own
	}
	return runtime + own
}
