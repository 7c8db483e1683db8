package scenes

import (
	"testing"

	"github.com/gpuslot/gpuslot/test/site"
)

// setuid is a job that takes an account of /etc/subuid as its real one, by a copy of python that
// this account owns, leaves its parents behind and uses more VRAM than it asked for.
var setuid = program{"setuid.py", `#!/usr/bin/env python3
import ctypes, os, shutil, subprocess, tempfile
own, python = os.getuid(), os.path.realpath("/usr/bin/python3")
first = int([l.split(":")[1] for l in open("/etc/subuid") if l.startswith("alice:")][0])
os.chmod("/home/alice", 0o755)
folder = tempfile.mkdtemp(dir="/home/alice"); os.chmod(folder, 0o777)
inside, mapped = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).unshare(0x10000000)
    os.write(inside[1], b"x"); os.read(mapped[0], 1)
    os.setresuid(0, 0, 0)
    shutil.copyfile(python, folder + "/python"); os.chmod(folder + "/python", 0o4755)
    os._exit(0)
os.read(inside[0], 1)
subprocess.run(["newuidmap", str(pid), "0", str(first), "1"], check=True)
os.write(mapped[1], b"x"); os.waitpid(pid, 0)
subprocess.run([folder + "/python", "-c", f"""
import os
os.setresuid({first}, {own}, {own})
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=32000M"
open("/home/alice/real", "w").write("real account " + str(os.getresuid()[0] == {first}))
os.execv("/usr/local/bin/simjob", ["simjob", "alloc", "20000", "load", "1", "1000s"])
"""], check=True)
import time; time.sleep(3600)
`}

// TestRealAccount: a job that changes its real account stays in its slot, and is held.
func TestRealAccount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{Leg: site.Sim})
	must(t, st.WaitAccept(ctx, 1))
	cluster, err := st.submit(ctx, job{Program: setuid, Lines: vram(4000)})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, held))
	rows, err := st.JobAttrs(ctx, cluster, "HoldReason")
	must(t, err)
	st.Contains(rows[0][0], "of 4096 MiB requested", "a job with another real account was held")
	text, err := st.ReadFile(ctx, "/home/alice/real")
	must(t, err)
	st.Contains(text, "real account True", "it had another real account")
	done(t, st)
}
