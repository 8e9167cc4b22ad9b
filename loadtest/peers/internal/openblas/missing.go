//go:build !openblas || !cgo

package openblas

import (
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
)

// Open says that there is no library.
func Open(int) wire.Library {
	return wire.Missing{Name: "OpenBLAS", Reason: "built without the tag openblas, which the script sets where cblas.h is installed"}
}
