package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// show prints value as JSON with -o json, else calls human.
func show(cmd *cobra.Command, value any, human func(w io.Writer)) error {
	format, _ := cmd.Flags().GetString("output")
	switch format {
	case "json":
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	case "table":
		human(cmd.OutOrStdout())
		return nil
	}
	return exitError{exitUsage, fmt.Errorf("--output %s: want table or json", format)}
}

// printTable writes rows under a header, without lines around them.
func printTable(w io.Writer, header []any, rows [][]any) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	t.AppendHeader(header)
	for _, row := range rows {
		t.AppendRow(row)
	}
	t.Render()
}

func bytesText(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

func countText(n int64) string { return humanize.Comma(n) }

func rateText(n float64) string {
	if n < 10 && n > 0 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return humanize.Comma(int64(n))
}

func durationText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// isTerminal reports whether f is a terminal, for progress that redraws.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
