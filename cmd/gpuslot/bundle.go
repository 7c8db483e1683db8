package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// bundleSchema is the first field of a report's manifest.
const bundleSchema = "gpuslot-report/1"

// manifest is report.json: what is in a report, and what could not be had.
type manifest struct {
	Schema string    `json:"schema"`
	Made   time.Time `json:"made"`
	Host   string    `json:"host"`
	Build  build     `json:"gpuslot"`
	// WithJobs: users and jobs are named as they are.
	WithJobs bool `json:"with_jobs"`
	// ConfigFile is the configuration's path; ConfigAbsent, that there is no such
	// file, which means all defaults.
	ConfigFile   string   `json:"config_file"`
	ConfigAbsent bool     `json:"config_absent,omitempty"`
	Files        []had    `json:"files"`
	Missing      []missed `json:"missing"`
}

// had is one file of a report.
type had struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Cut: it was longer, and its beginning is left out.
	Cut  bool `json:"cut,omitempty"`
	text []byte
}

// missed is a file that a report should have.
type missed struct {
	Name string `json:"name"`
	From string `json:"from"`
	Why  string `json:"why"`
}

func reportCommand(f *flags) *cobra.Command {
	var files []string
	var output string
	var withJobs bool
	c := &cobra.Command{
		Use:   "report",
		Short: "Collect what is needed to help with this node in one file",
		Long: `report writes one .tar.gz, which only its owner may read. It has the plan in force,
the configuration, the inventory, what doctor finds, versions, units, recent logs,
metrics, holds and history. It also has the part of HTCondor's configuration that
concerns GPUs. report changes nothing, and waits for no source longer than a minute. What could
not be had is in report.json with the reason; run it as root to have all.

Passwords and the like are left out. Accounts, groups and jobs are replaced by
user-1, group-1, job-1, unless --with-jobs says otherwise: names in the agent, its
records or the machine's accounts. Free text of programs may still say something:
look through the file before it leaves the site.

"gpuslot plan --from-report FILE" shows anywhere what the node's plan is.

Exit code 3: the report is written, but a file could not be had.`,
		Example: `  gpuslot report
  gpuslot report --output /tmp/wn1.tar.gz
  gpuslot plan --from-report wn1.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			made := time.Now().UTC().Truncate(time.Second)
			if output == "" {
				output = "gpuslot-report-" + hostLabel() + "-" + made.Format("20060102T150405Z") + ".tar.gz"
			}
			if _, err := os.Lstat(output); err == nil {
				return show.Usage(fmt.Errorf("%s exists; name another file with --output", output))
			}
			m, err := gather(c, f, files, withJobs, made)
			if err != nil {
				return err
			}
			if err := show.WriteFile(output, func(w io.Writer) error { return encodeBundle(w, m) }); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d files, %d could not be had (report.json says why)\n", output, len(m.Files),
				len(m.Missing))
			if len(m.Missing) > 0 {
				return quits{nil, exitFound}
			}
			return nil
		},
	}
	inventoryFlag(c, &files)
	c.Flags().StringVar(&output, "output", "",
		"the `file` to write; by default it has the host's name and the time, in this directory")
	c.Flags().BoolVar(&withJobs, "with-jobs", false, "leave the names of users, groups and jobs in")
	return c
}

// hostLabel is the host's short name, for a file's name.
func hostLabel() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "node"
	}
	label := []rune(name)
	for i, r := range label {
		if r == '.' && i > 0 {
			return string(label[:i])
		}
		if r == '/' || r < '-' {
			label[i] = '_'
		}
	}
	return string(label)
}

// gather asks every source; it fails for none of them.
func gather(c *cobra.Command, f *flags, files []string, withJobs bool, made time.Time) (manifest, error) {
	m := manifest{Schema: bundleSchema, Made: made, Host: hostLabel(), Build: thisBuild(), WithJobs: withJobs,
		ConfigFile: f.config, Files: []had{}, Missing: []missed{}}
	_, err := os.Stat(f.config)
	if m.ConfigAbsent = errors.Is(err, os.ErrNotExist); m.ConfigAbsent && c.Flags().Changed("config") {
		return m, fmt.Errorf("read configuration: %w", err)
	}
	n := nodeSources{command: c, flags: f, inventories: files, withJobs: withJobs}
	n.begin(c.Context())
	for _, s := range n.list() {
		text, cut, err := s.ask(c.Context())
		if c.Context().Err() != nil {
			return m, c.Context().Err()
		}
		if err == nil && !s.raw {
			text, err = n.veil.file(s.name, text)
		}
		if err != nil {
			m.Missing = append(m.Missing, missed{s.name, s.from, show.OneLine(n.veil.text(err.Error()))})
			fmt.Fprintln(c.ErrOrStderr(), s.notHad(err))
			continue
		}
		m.Files = append(m.Files, had{s.name, s.from, cut, text})
		fmt.Fprintf(c.ErrOrStderr(), "  %-28s %d bytes\n", s.name, len(text))
	}
	return m, nil
}

// source is one file of a report.
type source struct {
	name, from string
	deadline   time.Duration
	read       func(context.Context) ([]byte, error)
	// raw: the plan follows from it byte by byte, and it names no jobs.
	raw bool
}

func (s source) notHad(err error) string { // for a terminal: a stranger may have written some of it
	return fmt.Sprintf("  %-28s not had: %s", s.name, show.OneLine(err.Error()))
}

// mostOfSource bounds one file of a report, in bytes; of a longer one the end is kept.
const mostOfSource = 8 << 20

// ask waits no longer than the deadline, whatever the source does: a call into a
// wedged driver or file system never returns.
func (s source) ask(ctx context.Context) (text []byte, cut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := s.read(ctx)
		answers <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, false, fmt.Errorf("no answer within %s", s.deadline)
	case a := <-answers:
		if extra := len(a.text) - mostOfSource; extra > 0 {
			return a.text[extra:], true, a.err
		}
		return a.text, false, a.err
	}
}

// fileSource reads one file of the node.
func fileSource(name, path string) source {
	return source{name: name, from: path, deadline: shortDeadline, read: func(context.Context) ([]byte, error) {
		f, err := os.Open(filepath.Clean(path))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, mostOfSource))
	}}
}

// How long a report waits: for a file, a command, and for the driver.
const (
	shortDeadline   = 5 * time.Second
	commandDeadline = 20 * time.Second
	driverDeadline  = 60 * time.Second
)
