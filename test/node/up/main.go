// Command up boots a test node by hand, says how to enter it, and keeps it until it is interrupted.
//
//	go run ./test/node/up -condor -file /etc/condor/config.d/50-layout.config=layout.config
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/test/node"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	o := node.Options{Files: map[string]node.File{}, Progress: os.Stderr}
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	flags.StringVar(&o.Name, "name", "node", "host name of the node")
	condor := flags.Bool("condor", false, "start HTCondor too")
	flags.Func("file", "INSIDE=FILE: copy a file in before the boot, with its mode (repeatable)", func(arg string) error {
		inside, path, _ := strings.Cut(arg, "=")
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		o.Files[inside] = node.File{Data: string(data), Mode: info.Mode().Perm()}
		return err
	})
	flags.Func("bind", "INSIDE=PATH: show a host file or directory, read-only (repeatable)", func(arg string) error {
		inside, path, _ := strings.Cut(arg, "=")
		o.Binds = append(o.Binds, node.Bind{Host: path, Guest: inside})
		return nil
	})
	_ = flags.Parse(os.Args[1:]) // ExitOnError

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	n, err := node.Boot(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("node %s is up after %.2f s\n", n.Name(), time.Since(began).Seconds())
	if *condor {
		if err := n.StartCondor(ctx); err != nil {
			_ = n.Stop()
			return err
		}
		fmt.Printf("HTCondor is up after %.2f s\n", time.Since(began).Seconds())
	}
	fmt.Printf("enter it with: nsenter -t %d -m -u -i -n -p -C -- env -i HOME=/root TERM=\"$TERM\" bash -l\n", n.Leader())
	<-ctx.Done()
	return n.Stop()
}
