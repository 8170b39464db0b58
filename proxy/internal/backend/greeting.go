package backend

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"shardis/proxy/resp"
)

// greeter is the login of a new connection. It has two steps. The first is
// AUTH or HELLO alone: nothing may follow before its OK came, because on a node
// whose default user is open it would run as that user. The second step ends
// connections that were lost with requests inflight (see Pool), asks for the
// connection's id, names it, and selects the database.
type greeter struct {
	out   []byte // to write
	steps []step // replies still expected, in order
	final bool   // the second step was sent
}

type step struct {
	name string
	debt debt // for kill
}

const (
	stepLogin  = "log in"
	stepKill   = "end the lost connection"
	stepID     = "ask for the connection's id"
	stepName   = "name the connection"
	stepSelect = "select the database"
)

func (p *Pipeline) greet() {
	user, password := p.pool.user, p.pool.password
	p.user = user
	g := &p.hello
	switch {
	case p.proto == 3 && password != "":
		g.out = resp.AppendCommandStrings(nil, "HELLO", "3", "AUTH", userName(user), password)
	case p.proto == 3:
		g.out = resp.AppendCommandStrings(nil, "HELLO", "3")
	case password != "":
		g.out = resp.AppendCommandStrings(nil, "AUTH", userName(user), password)
	default:
		p.introduce()
		return
	}
	g.steps = append(g.steps, step{name: stepLogin})
}

func userName(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

// introduce sends the second step.
func (p *Pipeline) introduce() {
	g := &p.hello
	g.final = true
	add := func(s step, args ...string) {
		g.out = resp.AppendCommandStrings(g.out, args...)
		g.steps = append(g.steps, s)
	}
	for _, d := range p.pool.debts[p.node] {
		add(step{stepKill, d}, killArgs(d)...)
	}
	add(step{name: stepID}, "CLIENT", "ID")
	add(step{name: stepName}, "CLIENT", "SETNAME", "shardis")
	if p.db != 0 {
		add(step{name: stepSelect}, "SELECT", strconv.Itoa(p.db))
	}
}

// greeted takes the reply to one command of the login.
func (p *Pipeline) greeted(reply []byte) error {
	g := &p.hello
	if len(g.steps) == 0 {
		return errUnexpected
	}
	s := g.steps[0]
	g.steps = g.steps[1:]
	if reply[0] == '-' && s.name != stepName {
		// A user that is gone took its connections along.
		gone := s.name == stepKill && bytes.HasPrefix(reply, []byte("-ERR No such user"))
		if !gone {
			return fmt.Errorf("%s: %w", s.name, errors.New(strings.TrimSpace(string(reply[1:]))))
		}
	}
	switch s.name {
	case stepKill:
		p.pool.settle(p.node, s.debt)
	case stepID:
		_, id, _, ok := resp.Header(reply)
		if !ok || reply[0] != ':' {
			return errUnexpected
		}
		p.id = int64(id)
	}
	if len(g.steps) > 0 {
		return nil
	}
	if !g.final {
		p.introduce()
		p.markDirty()
		return nil
	}
	p.enter(ready)
	p.reason = nil
	p.markDirty()
	return nil
}
