package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
)

// measureMGet loads MGETs of 10 random keys of 3000, which redis-benchmark has
// no test for: 50 connections, one command at a time each.
func measureMGet(ctx context.Context, o options, subjects []subject) (map[string][]result, error) {
	const clients = 50
	commands := o.commands / 3
	progress("mget, %d clients: %d rounds of %d commands", clients, o.rounds, commands)
	all := map[string][]result{}
	for round := range o.rounds + 1 {
		for _, s := range subjects {
			before := cpuOf(s.proxy)
			if err := mgetLoad(ctx, s.addr, clients, commands/clients); err != nil {
				return nil, fmt.Errorf("mget against %s: %w", s.name, err)
			}
			if round > 0 {
				all[s.name] = append(all[s.name], result{proxyCPU: (cpuOf(s.proxy) - before) / float64(commands)})
			}
		}
	}
	return all, nil
}

func mgetLoad(ctx context.Context, addr string, clients, each int) error {
	errs := make(chan error, clients)
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() { errs <- mgetClient(ctx, addr, each) })
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func mgetClient(ctx context.Context, addr string, n int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	replies := bufio.NewReader(conn)
	for range n {
		var b strings.Builder
		b.WriteString("*11\r\n$4\r\nMGET\r\n")
		for range 10 {
			fmt.Fprintf(&b, "$16\r\nkey:%012d\r\n", rand.IntN(3000))
		}
		if _, err := io.WriteString(conn, b.String()); err != nil {
			return err
		}
		if err := skipArray(replies); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// skipArray reads one array of bulk strings.
func skipArray(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(line, "*%d", &n); err != nil {
		return fmt.Errorf("unexpected reply %q", line)
	}
	for range n {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		var size int
		if _, err := fmt.Sscanf(line, "$%d", &size); err != nil {
			return fmt.Errorf("unexpected reply %q", line)
		}
		if size >= 0 {
			if _, err := r.Discard(size + 2); err != nil {
				return err
			}
		}
	}
	return nil
}
