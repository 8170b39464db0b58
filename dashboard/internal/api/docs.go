package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"shardis/dashboard/internal/access"
)

// The page for people under /api/docs is made from the OpenAPI document once,
// at the start: plain HTML, no script, nothing loaded from elsewhere.

//go:embed docs.html
var docsTemplate string

//go:embed docs.css
var docsStyle []byte

type docsOperation struct {
	ID, Method, Path, Summary, Description, Role string
	Parameters                                   []docsField
	Input                                        string // name of the schema
	Answers                                      []docsAnswer
}

type docsAnswer struct{ Status, Schema string }

type docsField struct {
	Name, Type, Where, Text string
	Required                bool
}

type docsSchema struct {
	Name   string
	Fields []docsField
}

type docsSection struct {
	Tag        string
	Operations []docsOperation
}

type docsData struct {
	Title, Version, Text string
	Sections             []docsSection
	Schemas              []docsSchema
}

func docsPage(o *huma.OpenAPI) (page, style []byte) {
	data := docsData{Title: o.Info.Title, Version: o.Info.Version, Text: o.Info.Description}
	sections := map[string]*docsSection{}
	for _, path := range slices.Sorted(maps.Keys(o.Paths)) {
		item := o.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			s := sections[op.Tags[0]]
			if s == nil {
				s = &docsSection{Tag: op.Tags[0]}
				sections[s.Tag] = s
			}
			s.Operations = append(s.Operations, docsOf(op, path))
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(sections)) {
		data.Sections = append(data.Sections, *sections[tag])
	}
	schemas := o.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		data.Schemas = append(data.Schemas, docsSchema{name, fields(schemas[name])})
	}
	var b bytes.Buffer
	if err := template.Must(template.New("docs").Parse(docsTemplate)).Execute(&b, data); err != nil {
		panic(fmt.Sprintf("the page of the API can not be made: %v", err)) // invariant
	}
	return b.Bytes(), docsStyle
}

func docsOf(op *huma.Operation, path string) docsOperation {
	role, _ := op.Metadata[metaRole].(access.Role)
	out := docsOperation{
		ID: op.OperationID, Method: op.Method, Path: Base + path, Summary: op.Summary, Description: op.Description, Role: string(role),
	}
	for _, p := range op.Parameters {
		out.Parameters = append(out.Parameters, docsField{p.Name, typeName(p.Schema), p.In, p.Schema.Description, p.Required})
	}
	if op.RequestBody != nil {
		for _, media := range op.RequestBody.Content {
			out.Input = typeName(media.Schema)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		answer := docsAnswer{Status: status}
		for _, media := range op.Responses[status].Content {
			if media.Schema != nil {
				answer.Schema = typeName(media.Schema)
			}
		}
		out.Answers = append(out.Answers, answer)
	}
	return out
}

func fields(s *huma.Schema) []docsField {
	var out []docsField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		out = append(out, docsField{Name: name, Type: typeName(p), Text: p.Description, Required: slices.Contains(s.Required, name)})
	}
	return out
}

// typeName gives a schema in a word or two: Group, list of Move, "pause" or "run".
func typeName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Type == huma.TypeArray:
		return "list of " + typeName(s.Items)
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			words[i] = fmt.Sprint(v)
		}
		return strings.Join(words, " | ")
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}
