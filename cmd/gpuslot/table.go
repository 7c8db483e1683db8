package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpuslot/gpuslot/gpu"
)

// table prints rows in aligned columns, the first one as it is.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	_ = tw.Flush() // an error of w shows at its next use
}

// printJSON prints indented JSON with a final newline.
func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// mib prints an amount without its unit, which the column's title tells.
func mib[T ~int64](m T) string { return strconv.FormatInt(int64(m), 10) }

// orDash stands for what is not there.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// describeHost is a node in a few words.
func describeHost(h gpu.Host, driver, cuda string) string {
	s := fmt.Sprintf("%s: %d CPUs, %s of memory", orUnnamed(h.Name), h.CPUs, h.Memory)
	if driver != "" {
		s += ", driver " + driver
	}
	if cuda != "" {
		s += ", CUDA " + cuda
	}
	return s
}

func orUnnamed(name string) string {
	if name == "" {
		return "unnamed node"
	}
	return name
}
