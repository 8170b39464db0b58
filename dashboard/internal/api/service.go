package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"github.com/gin-gonic/gin"

	"shardis/coordinator"
)

// registerService adds what is not an API operation: health, metrics, the
// document and the pages made from it.
func (a *API) registerService() {
	a.engine.GET("/livez", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	a.engine.GET("/readyz", a.ready)
	a.engine.GET("/version", func(c *gin.Context) {
		c.JSON(http.StatusOK, gin.H{"version": a.Version, "goVersion": runtime.Version(), "component": "dashboard"})
	})
	a.engine.GET("/metrics", gin.WrapH(a.metrics.handler()))
	document, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		panic(fmt.Sprintf("the API's own document can not be encoded: %v", err)) // invariant
	}
	a.engine.GET(Base+"/openapi.json", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", document) })
	page, style := docsPage(a.huma.OpenAPI())
	a.engine.GET("/api/docs", func(c *gin.Context) { c.Data(http.StatusOK, "text/html; charset=utf-8", page) })
	a.engine.GET("/api/docs/style.css", func(c *gin.Context) { c.Data(http.StatusOK, "text/css; charset=utf-8", style) })
	a.engine.GET("/problems/:code", func(c *gin.Context) {
		k, known := kinds[coordinator.Code(c.Param("code"))]
		if !known {
			a.refuse(c, problem(codeNoRoute, "There is no such kind of problem."))
			return
		}
		text := fmt.Sprintf("%s\n\nCode: %s\nStatus: %d\n", k.title, c.Param("code"), k.status)
		if k.retry {
			text += "The same request may succeed later.\n"
		}
		c.String(http.StatusOK, text)
	})
}

// ready says whether this dashboard can show a state: it read one, and etcd
// answers. ?verbose lists the checks.
func (a *API) ready(c *gin.Context) {
	var b strings.Builder
	ready := true
	check := func(name string, good bool) {
		sign := "+"
		if !good {
			sign, ready = "-", false
		}
		fmt.Fprintf(&b, "[%s] %s\n", sign, name)
	}
	check("state read", a.View.State().Rev > 0)
	check("etcd answers", a.View.Connected())
	status, text := http.StatusOK, "ok\n"
	if !ready {
		status, text = http.StatusServiceUnavailable, "not ready\n"
	}
	if _, verbose := c.GetQuery("verbose"); verbose || !ready {
		text = b.String() + text
	}
	c.String(status, text)
}
