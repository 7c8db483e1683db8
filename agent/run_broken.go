package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/server"
)

// brokenConfig is a gpuslot.toml that a start cannot use.
type brokenConfig struct {
	error
	// Hardware: the file is valid, and there is no plan for these GPUs.
	Hardware bool
}

func (b brokenConfig) Unwrap() error { return b.error }

const (
	// configLook is the pace of looks at a broken file.
	configLook = time.Second
	// configAgain is when a file is tried again with the GPUs of then.
	configAgain = time.Minute
)

// awaitConfig answers every request with the error of gpuslot.toml until the file
// changes, or SIGHUP comes: then a new process is to start (ErrStartAgain). A program that
// ended would be started again at once, since callers wait on the socket. Nothing on
// the host is changed: control daemons and jobs run on, and no GPU takes a new job.
func awaitConfig(ctx context.Context, o Options, was fs.FileInfo, broken brokenConfig) error {
	text := fmt.Sprintf("all GPUs of this node are closed until %s is valid: %v; gpuslotd reads the changed file "+
		"automatically",
		o.ConfigFile, broken)
	tell := func(err error) {
		if err != nil {
			o.Log.Warn("service manager not told", "err", err)
		}
	}
	o.Log.Error("all GPUs are closed until the configuration changes", "err", broken)
	if o.Manager != nil {
		tell(errors.Join(o.Manager.Status(text), o.Manager.Ready()))
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	srv := server.New(server.Options{Own: uint32(os.Geteuid()), Unable: text, Log: o.Log})
	served := make(chan error, 1)
	wg.Go(func() { served <- srv.Serve(ctx, o.Listener) })
	look, alive := time.NewTicker(configLook), time.NewTicker(pings)
	defer look.Stop()
	defer alive.Stop()
	var again <-chan time.Time
	if broken.Hardware {
		t := time.NewTimer(configAgain)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-o.Reload:
			return ErrStartAgain
		case <-again:
			return ErrStartAgain
		case <-look.C:
			if !sameFile(was, o.ConfigFile) {
				o.Log.Info("the configuration has changed", "file", o.ConfigFile)
				return ErrStartAgain
			}
		case <-alive.C:
			if o.Manager != nil {
				tell(o.Manager.Alive())
			}
		}
	}
}

// sameFile says whether a file is as it was; was is nil if there was none.
func sameFile(was fs.FileInfo, path string) bool {
	now, err := os.Stat(path)
	if was == nil || err != nil {
		return was == nil && err != nil
	}
	return os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime())
}
