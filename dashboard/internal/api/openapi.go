package api

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/danielgtaylor/huma/v2"
)

// humaConfig is our API for huma: JSON only, unknown fields refused, no
// $schema links in bodies, none of huma's own pages (they load from a CDN).
func humaConfig(version string) huma.Config {
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	c := huma.DefaultConfig("Shardis", version)
	c.Info.Description = "Look at and change a Shardis cluster. Long work is an operation: it answers 202 at once and is followed " +
		"by GET /operations/{id} or GET /events. Errors are problem documents (RFC 9457). Send an Idempotency-Key with a POST to " +
		"be able to repeat it safely."
	c.Servers = []*huma.Server{{URL: Base}}
	c.DocsPath, c.SchemasPath, c.OpenAPIPath = "", "", ""
	c.CreateHooks = nil
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	c.RejectUnknownQueryParameters = true
	c.Transformers = []huma.Transformer{stamp}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer":  {Type: "http", Scheme: "bearer", Description: "A token made under /tokens."},
		"session": {Type: "apiKey", In: "cookie", Name: cookieName(true), Description: "Set by /auth/login."},
	}
	return c
}

// unmarshal reads a body; what is wrong with it is said without quoting it.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return errors.New("the body is not valid JSON")
	case errors.As(err, &kind):
		return errors.New("a value has the wrong type: " + kind.Field + " wants " + kind.Type.String())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body ends too early")
	}
	return err
}

// stamp adds the request's id to a problem document.
func stamp(ctx huma.Context, _ string, v any) (any, error) {
	p, isProblem := v.(*Problem)
	if !isProblem {
		return v, nil
	}
	stamped := *p
	stamped.Instance = requestIDOf(ctx.Context())
	return &stamped, nil
}
