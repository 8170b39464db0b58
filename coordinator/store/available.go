package store

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Unavailable reports whether err says that etcd did not answer, rather than
// what it answered. A write that failed so may have happened all the same.
func Unavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	var answered rpctypes.EtcdError
	if errors.As(err, &answered) {
		code = answered.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}
