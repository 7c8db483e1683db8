// Package show writes what the verbs of gpuslot print: tables, JSON, progress, and
// errors with a hint.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table prints rows in aligned columns, the first one as it is.
type Table struct{ rows [][]string }

// Row adds a row. What a job names may be in a cell: it gives the terminal no orders.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Visible(c)
	}
	t.rows = append(t.rows, row)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Print writes the rows. An error of w shows at its next use.
func (t *Table) Print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	_ = tw.Flush()
}

// JSON prints indented JSON with a final newline.
func JSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// MiB prints an amount without its unit, which the column's title says.
func MiB[T ~int64](m T) string { return strconv.FormatInt(int64(m), 10) }

// OrDash stands for what is not there.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
