// Command mutants changes the program in one place at a time and runs the tests of the
// changed package. A change that no test notices shows what the tests do not check.
//
//	mutants [-n 300] [-seed 1] [-only REGEXP] [-into FILE] [PACKAGE…]
//
// The same seed draws the same changes of the same sources. Results are kept in FILE, one
// JSON line each, so that a later run goes on where this one was cut off; a result counts
// until a Go file of its package changes. With -only all changes are tried whose line in
// the list matches, "file | function | source line | change", whatever the draw. The file equivalent.txt lists changes that no
// test can notice, with the reason. The exit code is 1 where an aim is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// defaults are the packages of a whole sample.
var defaults = []string{"./agent/...", "./condor/...", "./mps", "./mig", "./gpu/...", "./cmd/gpuslot-condor"}

// options are those of the command line.
type options struct {
	n, jobs  int
	seed     uint64
	only     string
	into     string
	list     bool
	packages []string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 300, "how many changes to try")
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of the draw")
	flag.StringVar(&o.only, "only", "", "try all changes that match this regular expression")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many packages are tested at a time")
	flag.StringVar(&o.into, "into", "dist/mutants.jsonl", "the file with results")
	flag.BoolVar(&o.list, "list", false, "print the changes and try none")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = defaults
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) error {
	packages, err := list(ctx, o.packages)
	if err != nil {
		return err
	}
	equal, err := readEquivalents("test/mutants/equivalent.txt")
	if err != nil {
		return err
	}
	kept, err := openResults(o.into)
	if err != nil {
		return err
	}
	defer kept.Close()
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	var queues []*queue
	total := 0
	for _, p := range packages {
		total += len(p.sites)
	}
	for _, p := range packages {
		// Drawn first: an equivalent that is found takes itself out and moves no other.
		r := rand.New(rand.NewPCG(o.seed, seedOf(p.path)))
		r.Shuffle(len(p.sites), func(i, j int) { p.sites[i], p.sites[j] = p.sites[j], p.sites[i] })
		p.sites = slices.DeleteFunc(p.sites, func(s site) bool {
			return slices.Contains(equal, s.key()) || !only.MatchString(s.key())
		})
		want := part(o.n, len(p.sites), total)
		if o.only != "" {
			want = len(p.sites)
		}
		queues = append(queues, &queue{pkg: p, want: want})
	}
	if o.list {
		for _, q := range queues {
			for _, s := range q.pkg.sites[:min(q.want, len(q.pkg.sites))] {
				fmt.Fprintln(out, s.key())
			}
		}
		return nil
	}
	if err := tryAll(ctx, out, queues, kept, o.jobs); err != nil {
		return err
	}
	return report(out, queues, ctx.Err() != nil)
}

// seedOf makes the draws of two packages differ.
func seedOf(path string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path)
	return h.Sum64()
}

// fewest is how many changes of each package are tried at least.
const fewest = 5

// part is how many of n changes fall to a package.
func part(n, sites, total int) int {
	if total == 0 {
		return 0
	}
	return min(sites, max(fewest, (n*sites+total/2)/total))
}

// queue is a package with what was found of it.
type queue struct {
	pkg     *pkg
	want    int
	results []result
	err     error
}

// tryAll tries the changes of several packages at a time, those of one package one after
// the other. It ends early, without an error, when the context does.
func tryAll(ctx context.Context, out io.Writer, queues []*queue, kept *results, jobs int) error {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		todo = make(chan *queue)
	)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	for range jobs {
		wg.Go(func() {
			for q := range todo {
				q.err = q.try(ctx, kept, say)
			}
		})
	}
	// Those with most to do first, so that all end at about the same time.
	byWork := slices.Clone(queues)
	slices.SortStableFunc(byWork, func(a, b *queue) int { return b.want - a.want })
	for _, q := range byWork {
		todo <- q
	}
	close(todo)
	wg.Wait()
	var errs []error
	for _, q := range queues {
		errs = append(errs, q.err)
	}
	return errors.Join(errs...)
}

// try tries as many changes of a package as it should have. One that does not compile
// counts for nothing, and the next one takes its place.
func (q *queue) try(ctx context.Context, kept *results, say func(string, ...any)) error {
	if q.want == 0 {
		return nil
	}
	var patience time.Duration
	for _, s := range q.pkg.sites {
		if len(q.results) == q.want || ctx.Err() != nil {
			return nil //nolint:nilerr // report says that it was stopped
		}
		r, ok := kept.find(s, q.pkg.state)
		if !ok {
			var err error
			if patience == 0 {
				if patience, err = q.pkg.unchanged(ctx); err != nil {
					return ended(ctx, err)
				}
			}
			if r, err = q.pkg.test(ctx, s, patience); err != nil {
				return ended(ctx, err)
			}
			if err := kept.add(r); err != nil {
				return err
			}
		}
		if r.Result == notBuilt {
			continue
		}
		q.results = append(q.results, r)
		say("%s %s: %s %s", r.Result, s.where(), s.change, r.By)
	}
	return nil
}

// ended is no error where a signal ended the run.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // report says it
	}
	return err
}
