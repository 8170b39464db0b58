package main

import (
	"cmp"
	"fmt"
	"slices"
)

// commandSpec is one command or sub-command as COMMAND and COMMAND DOCS tell it.
type commandSpec struct {
	Name     string    `json:"name"`
	Arity    int       `json:"arity"`
	Flags    []string  `json:"flags"`
	FirstKey int       `json:"first_key"`
	LastKey  int       `json:"last_key"`
	Step     int       `json:"step"`
	ACL      []string  `json:"acl"`
	Tips     []string  `json:"tips,omitempty"`
	KeySpecs []keySpec `json:"key_specs,omitempty"`
	Docs     docSpec   `json:"docs"`

	Subcommands []*commandSpec `json:"subcommands,omitempty"`
}

type keySpec struct {
	Notes       string      `json:"notes,omitempty"`
	Flags       []string    `json:"flags"`
	BeginSearch beginSearch `json:"begin_search"`
	FindKeys    findKeys    `json:"find_keys"`
}

type beginSearch struct {
	Type      string `json:"type"` // index, keyword or unknown
	Index     int    `json:"index,omitempty"`
	Keyword   string `json:"keyword,omitempty"`
	StartFrom int    `json:"startfrom,omitempty"`
}

type findKeys struct {
	Type      string `json:"type"` // range, keynum or unknown
	LastKey   int    `json:"lastkey,omitempty"`
	KeyStep   int    `json:"keystep,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	KeyNumIdx int    `json:"keynumidx,omitempty"`
	FirstKey  int    `json:"firstkey,omitempty"`
}

type docSpec struct {
	Summary         string      `json:"summary,omitempty"`
	Since           string      `json:"since,omitempty"`
	Group           string      `json:"group,omitempty"`
	Complexity      string      `json:"complexity,omitempty"`
	DocFlags        []string    `json:"doc_flags,omitempty"`
	DeprecatedSince string      `json:"deprecated_since,omitempty"`
	ReplacedBy      string      `json:"replaced_by,omitempty"`
	History         [][2]string `json:"history,omitempty"`
	Arguments       []argument  `json:"arguments,omitempty"`
}

type argument struct {
	Name            string     `json:"name"`
	Type            string     `json:"type"`
	KeySpecIndex    *int       `json:"key_spec_index,omitempty"`
	Token           *string    `json:"token,omitempty"`
	Summary         string     `json:"summary,omitempty"`
	Since           string     `json:"since,omitempty"`
	DeprecatedSince string     `json:"deprecated_since,omitempty"`
	Flags           []string   `json:"flags,omitempty"`
	Arguments       []argument `json:"arguments,omitempty"`
}

// entry is one row of the table: commands first, then the sub-commands of each
// container in one run.
type entry struct {
	*commandSpec
	added    bool // from additions.json
	firstSub int
	subs     int
}

// flatten gives every command and sub-command its row. Row numbers are the IDs.
func flatten(known, added []*commandSpec) ([]entry, error) {
	list := []entry{{commandSpec: &commandSpec{}}} // row 0 stands for "unknown"
	byName := map[string]int{}
	addAll := func(specs []*commandSpec, added bool) error {
		slices.SortFunc(specs, func(a, b *commandSpec) int { return cmp.Compare(a.Name, b.Name) })
		for _, c := range specs {
			if _, twice := byName[c.Name]; twice {
				if !added || len(c.Subcommands) == 0 {
					return fmt.Errorf("command %s is there twice", c.Name)
				}
				continue // names the container of added sub-commands
			}
			byName[c.Name] = len(list)
			list = append(list, entry{commandSpec: c, added: added})
		}
		return nil
	}
	if err := addAll(known, false); err != nil {
		return nil, err
	}
	if err := addAll(added, true); err != nil {
		return nil, err
	}
	more := map[string][]*commandSpec{}
	for _, c := range added {
		more[c.Name] = c.Subcommands
	}
	for i, n := 1, len(list); i < n; i++ {
		own := slices.Clone(list[i].Subcommands)
		slices.SortFunc(own, func(a, b *commandSpec) int { return cmp.Compare(a.Name, b.Name) })
		first := len(list)
		for _, s := range own {
			list = append(list, entry{commandSpec: s, added: list[i].added})
		}
		if !list[i].added {
			for _, s := range more[list[i].Name] {
				if !slices.ContainsFunc(own, func(o *commandSpec) bool { return o.Name == s.Name }) {
					list = append(list, entry{commandSpec: s, added: true})
				}
			}
		}
		if len(list) > first {
			list[i].firstSub, list[i].subs = first, len(list)-first
		}
	}
	return list, nil
}
