package feed

import (
	"context"
	"errors"
	"fmt"

	"shardis/coordinator/internal/wire"
	"shardis/proxy/command"
)

// keyless are the commands a log may hold that change no key.
var keyless = map[string]bool{
	"select": true, "ping": true, "multi": true, "exec": true,
	"publish": true, "spublish": true,
	"script|load": true, "script|flush": true,
	"function|load": true, "function|delete": true, "function|flush": true, "function|restore": true,
	"replconf": true,
}

// flushing are those that change keys without naming them.
var flushing = map[string]bool{"flushall": true, "flushdb": true, "swapdb": true}

// name passes on the keys of one logged command. Names of keys that are only
// read are among them: reading one again is cheap and never wrong.
func (t *Tail) name(ctx context.Context, args [][]byte) error {
	c := command.Lookup(args)
	switch {
	case c == nil:
		return t.nameByNode(ctx, args)
	case keyless[c.Name]:
		return nil
	case flushing[c.Name]:
		return fmt.Errorf("%w: %s", ErrFlushed, c.Name)
	case c.Class == command.ClassScript:
		// Servers of the versions we accept log what a script did, not the
		// script, whose keys would tell nothing.
		return fmt.Errorf("%w: %s", ErrUnknownKeys, c.Name)
	case !c.HasKeys() || !c.CheckArity(len(args)):
		return t.nameByNode(ctx, args)
	}
	indexes, err := c.Keys(args, t.indexes[:0])
	t.indexes = indexes
	if err != nil {
		return t.nameByNode(ctx, args)
	}
	for _, i := range indexes {
		t.cfg.Named(args[i])
	}
	return nil
}

// nameByNode asks the node what the keys are.
func (t *Tail) nameByNode(ctx context.Context, args [][]byte) error {
	if t.helper == nil {
		helper, err := t.dial(ctx)
		if err != nil {
			return err
		}
		t.helper = helper
	}
	ask := make([]string, 0, len(args)+2)
	ask = append(ask, "COMMAND", "GETKEYS")
	for _, a := range args {
		ask = append(ask, string(a))
	}
	reply, err := t.helper.Do(ask...)
	var refused wire.ServerError
	if err != nil && !errors.As(err, &refused) {
		_ = t.helper.Close()
		t.helper = nil
		return err
	}
	if err != nil || len(reply.Items) == 0 {
		return fmt.Errorf("%w: %s: %s", ErrUnknownKeys, args[0], refused)
	}
	for _, key := range reply.Items {
		t.cfg.Named(key.Bytes)
	}
	return nil
}
