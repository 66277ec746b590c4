package setup

import (
	"io/fs"
	"os"
	"syscall"
)

// chownLike gives a folder the owner of another one.
func chownLike(path string, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}
