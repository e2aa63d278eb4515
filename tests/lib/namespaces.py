"""Hosts on this machine: network namespaces on a bridge, each with a name of its own and an interface ``e0``.

All live in namespaces of mounts and processes too, whose first process ends with this one: so nothing is left, not even
after SIGKILL. Root needs nothing else; others need user namespaces (``unshare -Ur``).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

START = """
mount -t tmpfs none /run && mkdir /run/netns
printf '127.0.0.1 localhost\\n10.77.0.1 a\\n10.77.0.2 b\\n10.77.0.3 c\\n10.77.0.4 d\\n' > /run/hosts
mount --bind /run/hosts /etc/hosts && echo ready && exec cat
"""

OPEN_MPI = [
    *(
        "--allow-run-as-root",
        "--map-by",
        "slot:OVERSUBSCRIBE",
        "--bind-to",
        "none",
        "--mca",
        "mpi_yield_when_idle",
        "1",
    ),
    *("--prtemca", "prte_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24"),
    *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self,sm"),
]
INTEL = {"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_IFACE": "e0", "I_MPI_PIN": "0", "I_MPI_OFI_PROVIDER": "tcp"}
MPICH = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
MPI = INTEL | MPICH | {"FI_TCP_IFACE": "e0", "I_MPI_THREAD_YIELD": "3"}
"""By default MPIs look for other networks, and use what they think to be the memory of one machine."""

PLACE = 'hostname $0; exec taskset -c $(printenv CPUS_$0) "$@"'
"""How a command starts on a host: hosts share no processor, if there are enough."""

AGENT = """#!/bin/sh
# Starts a command on a host, in the manner of ssh: agent [-options] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare -u sh -c 'hostname $0; exec taskset -c $(printenv CPUS_$0) sh -c "$1"' "$host" "$*"
"""


class Refused(Exception):
    """The kernel refuses namespaces; the message says why."""


class Namespaces:
    """Hosts ``a``, ``b``, ... with addresses 10.77.0.1, 10.77.0.2, ..."""

    def __init__(self, hosts=2, rate=None):
        """Makes hosts; `rate`: of the interface of each, as ``1gbit``."""
        mine = [] if os.geteuid() == 0 else ["-Ur"]
        command = ["unshare", *mine, "-nm", "--pid", "--fork", "--mount-proc", "sh", "-c", START]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.keeper = subprocess.Popen(command, **pipes)
        if self.keeper.stdout.readline() != b"ready\n":
            raise Refused(self.keeper.communicate()[1].decode().strip())
        first = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()[0]
        user = ["-U", "--preserve-credentials"] if mine else []
        self.enter = ["nsenter", "-t", first, *user, "-n", "-m", "-p"]
        self.names = "abcdefgh"[:hosts]
        cpus = sorted(os.sched_getaffinity(0))
        own = [cpus[i::hosts] or [cpus[i % len(cpus)]] for i in range(hosts)]
        self.cpus = {f"CPUS_{name}": ",".join(map(str, each)) for name, each in zip(self.names, own, strict=True)}
        self.started: list[subprocess.Popen[str]] = []
        try:
            self.ip("link add br0 type bridge; ip link set br0 mtu 9000 up")
            for number, name in enumerate(self.names, 1):
                self.ip(f"netns add {name}; ip link add v{name} type veth peer name e0 netns {name}")
                self.ip(f"link set v{name} mtu 9000 master br0 up; ip -n {name} link set e0 mtu 9000 up")
                self.ip(f"-n {name} link set lo up; ip -n {name} addr add 10.77.0.{number}/24 dev e0")
            if rate is not None:
                self.shape(rate)
        except subprocess.CalledProcessError as error:
            self.close()
            raise Refused(error.stderr.strip()) from error

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Ends all processes on the hosts, and the hosts."""
        for process in self.started:  # `nsenter` stops itself with a child that is stopped
            process.kill()
        self.keeper.stdin.close()
        self.keeper.wait(30)
        self.keeper.stdout.close()
        self.keeper.stderr.close()

    def ip(self, arguments):
        """Runs ``ip`` with arguments, which may go on with ``;``."""
        run = [*self.enter, "sh", "-ec", f"ip {arguments}"]
        subprocess.run(run, check=True, capture_output=True, text=True, timeout=30)

    def shape(self, rate):
        """Limits what each host sends; ``None``: not."""
        for name in self.names:
            how = f"replace dev e0 root tbf rate {rate} burst 256kb latency 50ms" if rate else "del dev e0 root"
            self.ip(f"link show br0 > /dev/null; ip netns exec {name} tc qdisc {how}")

    def start(self, host, command, **environment):
        """Starts a command on a host; its output is its pipe."""
        inside = ["ip", "netns", "exec", host, "unshare", "-u", "sh", "-c", PLACE, host]
        process = subprocess.Popen(
            [*self.enter, *inside, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | self.cpus | environment,
        )
        self.started.append(process)
        return process

    def torchrun(self, *program, ranks=2, limit=120, **environment):
        """Runs a program under torchrun on all hosts; returns exit status and output by host.

        Args:
            program: a script and its arguments.
            ranks: of each host; a number, or one for each.
            limit: seconds.
        """
        ranks = [ranks] * len(self.names) if isinstance(ranks, int) else ranks
        environment = {"OMP_NUM_THREADS": "1"} | environment
        running = []
        for number, (name, own) in enumerate(zip(self.names, ranks, strict=True)):
            where = ["--nnodes", len(ranks), "--node-rank", number, "--nproc-per-node", own]
            where += ["--master-addr", "10.77.0.1", "--master-port", 29501]
            command = [sys.executable, "-m", "torch.distributed.run", *where, *program]
            running.append(self.start(name, command, **environment))
        return self.ends(running, limit)

    def mpirun(self, mpirun, *program, ranks=2, limit=120, **environment):
        """Runs a program under an mpirun, ranks on each host; returns exit status and output."""
        path = {"PATH": f"{Path(mpirun).parent}:{os.environ['PATH']}"}
        ask = [mpirun, "--version"]
        version = subprocess.run(ask, capture_output=True, text=True, timeout=60, env=os.environ | path).stdout
        agent, count = Path(tempfile.mkdtemp()) / "agent", ranks * len(self.names)
        agent.write_text(AGENT)
        agent.chmod(0o755)
        on = ",".join(f"{name}:{ranks}" for name in self.names)
        if "Open MPI" in version or "Open-MPI" in version:
            how = ["--host", on, "--prtemca", "plm_ssh_agent", agent, *OPEN_MPI]
        elif "Intel" in version:
            how, environment = ["-hosts", ",".join(self.names), "-ppn", ranks], environment | MPI
            environment |= {"I_MPI_HYDRA_BOOTSTRAP_EXEC": str(agent)}
        else:
            how, environment = (
                ["-launcher", "ssh", "-launcher-exec", agent, "-iface", "e0", "-hosts", on],
                environment | MPI,
            )
        environment = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29502"} | environment | path
        environment["TMPDIR"] = str(agent.parent)  # Open MPI refuses folders of processes that had the same numbers
        running = self.start("a", [mpirun, *how, "-n", count, *program], **environment)
        try:
            return self.ends([running], limit)[0]
        finally:
            shutil.rmtree(agent.parent)

    def ends(self, running, limit):
        """Returns exit status and output of processes; more than `limit` seconds are an error."""
        try:
            return [(each.communicate(timeout=limit)[0], each.returncode)[::-1] for each in running]
        except subprocess.TimeoutExpired:
            self.close()
            said = "\n".join(each.communicate()[0] for each in running)
            raise AssertionError(f"the ranks did not end within {limit} s:\n{said}") from None
