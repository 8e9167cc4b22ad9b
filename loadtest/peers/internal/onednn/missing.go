//go:build !onednn || !cgo

package onednn

import (
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
)

// Open says that there is no library.
func Open(int) wire.Library {
	return wire.Missing{Name: "oneDNN", Reason: "built without the tag onednn, which the script sets where the headers of oneDNN 2 are installed"}
}
