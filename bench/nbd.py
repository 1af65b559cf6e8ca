#!/usr/bin/env python3
"""Serving NBD: Tidegate against nbdkit, qemu-nbd and qemu-storage-daemon.

Every server in turn serves the same prefilled file on tmpfs over a unix socket to the same fio
jobs. One server runs at a time; within a round all of them run a workload one after the other,
so that what else the machine does meets all of them alike, and the order rotates from round to
round. Ratios are those of pairs from the same round; medians are over rounds.

CPU is what the server's process used (user and system, all threads, the kernel's io_uring
workers among them) between the first connection and the last, for each request answered.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import (
    KIB,
    MIB,
    BenchError,
    Running,
    Server,
    die_with_parent,
    first_line,
    prefill,
    processor,
    progress,
    run_command,
    run_fio,
)


# ---------------------------------------------------------------------------- workloads


class Workload:
    def __init__(self, rw, block, depth, clients):
        self.rw, self.block, self.depth, self.clients = rw, block, depth, clients

    @property
    def key(self):
        return f"{self.rw}-{self.block // KIB}k-d{self.depth}-c{self.clients}"

    @property
    def title(self):
        order = "random" if self.rw == "randread" else "sequential"
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"{self.block // KIB} KiB {order} reads, depth {self.depth}, {clients}"


WORKLOADS = [
    Workload(rw, block, depth, clients)
    for clients in (1, 2)
    for rw, block, depth in (
        ("randread", 4 * KIB, 1),
        ("randread", 4 * KIB, 32),
        ("randread", 4 * KIB, 128),
        ("read", 128 * KIB, 32),
    )
]


# ---------------------------------------------------------------------------- servers


def qemu_aio(program, args_for, disk, directory):
    """io_uring where this build and kernel offer it, threads otherwise."""
    sock = directory / "probe.sock"
    try:
        with Running(Server(program, "", lambda s: args_for("io_uring", s)), sock):
            return "io_uring"
    except BenchError:
        return "threads"


def make_servers(names, args, disk, directory):
    servers, skipped = [], []
    for name in names:
        tool = {"nbdkit": "nbdkit", "qemu-nbd": "qemu-nbd", "qsd": "qemu-storage-daemon"}.get(name)
        if tool and not shutil.which(tool):
            skipped.append(f"{name}: needs {tool}")
            continue
        servers.extend(MAKERS[name](args, disk, directory))
    return servers, skipped


def make_tidegate(args, disk, directory):
    builds = {"tidegate": Path(args.tidegate), **args.beside}
    return [
        server
        for name, binary in builds.items()
        for server in make_build(name, binary.resolve(), args, disk, directory)
    ]


def make_build(name, binary, args, disk, directory):
    """One build of Tidegate, with each policy."""
    if not os.access(binary, os.X_OK):
        raise BenchError(f"{binary} is not there; build it with: make build")
    version = first_line(str(binary), "--version")

    def command_for(policy):
        def command(sock):
            depth = f"depth = {args.device_depth}\n" if args.device_depth else ""
            config = directory / "tidegate.toml"
            config.write_text(
                f'[control]\nsocket = "{directory}/control.sock"\n'
                f'[[listen]]\nunix = "{sock}"\nexports = ["bench"]\n'
                f'[[device]]\nname = "tmpfs"\nkind = "file"\npolicy = "{policy}"\n{depth}'
                f'[[vm]]\nname = "bench"\n'
                f'[[vm.disk]]\npath = "{disk}"\nread_only = true\nformat = "raw"\n'
            )
            return [str(binary), "serve", str(config)]

        return command

    return [
        Server(f"{name} {policy}", version, command_for(policy), "bench")
        for policy in args.policy.split(",")
    ]


def make_nbdkit(_args, disk, _directory):
    def command(sock):
        return ["nbdkit", "-f", "-r", "-U", str(sock), "file", f"file={disk}"]

    return [Server("nbdkit file", first_line("nbdkit", "--version"), command)]


def make_qemu_nbd(_args, disk, directory):
    def command(aio, sock):
        return ["qemu-nbd", "--format=raw", "--read-only", "--persistent", "--shared=16",
                f"--aio={aio}", f"--socket={sock}", str(disk)]  # fmt: skip

    aio = qemu_aio("qemu-nbd", command, disk, directory)
    version = first_line("qemu-nbd", "--version")
    return [Server(f"qemu-nbd {aio}", version, lambda sock: command(aio, sock))]


def make_qsd(_args, disk, directory):
    def command(aio, sock):
        return ["qemu-storage-daemon",
                "--blockdev", f"driver=file,node-name=d,filename={disk},read-only=on,aio={aio}",
                "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=16",
                "--export", "type=nbd,id=e,node-name=d,name=bench,writable=off"]  # fmt: skip

    def with_export(aio):
        return Server(f"qemu-storage-daemon {aio}", version, lambda s: command(aio, s), "bench")

    version = first_line("qemu-storage-daemon", "--version")
    return [with_export(qemu_aio("qemu-storage-daemon", command, disk, directory))]


MAKERS = {
    "tidegate": make_tidegate,
    "nbdkit": make_nbdkit,
    "qemu-nbd": make_qemu_nbd,
    "qsd": make_qsd,
}


# ---------------------------------------------------------------------------- measuring


def check_bytes(server, sock, disk):
    """What the server serves is the file: a fast answer must be a true one too."""
    with Running(server, sock) as running:
        copy = subprocess.Popen(
            ["nbdcopy", running.uri(), "-"], stdout=subprocess.PIPE, preexec_fn=die_with_parent
        )
        try:
            same = subprocess.run(["cmp", "-", str(disk)], stdin=copy.stdout, check=False)
            copy.stdout.close()
            if copy.wait() or same.returncode:
                raise BenchError(f"{server.name} serves other bytes than the file has")
        finally:
            if copy.poll() is None:
                copy.kill()
                copy.wait()


def fio_over(uri, workload, args):
    """The figures of a workload, by fio."""
    part = args.size // workload.clients
    arguments = ["--name=bench", "--ioengine=nbd", f"--uri={uri}", f"--rw={workload.rw}",
                 f"--bs={workload.block}", f"--iodepth={workload.depth}",
                 f"--numjobs={workload.clients}", f"--size={part}", f"--offset_increment={part}",
                 "--time_based=1", f"--runtime={args.seconds}", "--norandommap=1",
                 "--group_reporting=1", "--percentile_list=50:99"]  # fmt: skip
    return believed(run_fio(arguments, args.seconds + 30), workload, args)


def believed(jobs, workload, args):
    """fio's figures, once they add up."""
    if len(jobs) != 1:
        raise BenchError(f"fio reports {len(jobs)} groups instead of one")
    job = jobs[0]
    read, options = job["read"], job["job options"]
    ios = read["total_ios"]
    latency = read["clat_ns"]
    in_flight = read["iops"] * read["lat_ns"]["mean"] / 1e9
    wanted = workload.depth * workload.clients
    problems = [
        what
        for what, wrong in {
            f"error {job['error']}": job["error"] != 0,
            "writes among reads": job["write"]["total_ios"] or job["trim"]["total_ios"],
            "no reads": ios == 0,
            f"{read['io_bytes']} bytes in {ios} reads": abs(read["io_bytes"] - ios * workload.block)
            > 2 * wanted * workload.block,
            f"ran {read['runtime']} ms": not 900 * args.seconds
            <= read["runtime"]
            <= 1200 * args.seconds,
            f"{in_flight:.1f} in flight instead of {wanted}": not 0.7 * wanted
            <= in_flight
            <= 1.1 * wanted + 1,
            f"another engine, {options.get('ioengine')}": options.get("ioengine") != "nbd",
        }.items()
        if wrong
    ]
    if problems:
        raise BenchError(f"{workload.title}: fio's figures cannot be believed: {problems}")
    return {
        "requests": ios,
        "iops": read["iops"],
        "mb_s": read["bw_bytes"] / 1e6,
        "p50_us": latency["percentile"]["50.000000"] / 1000,
        "p99_us": latency["percentile"]["99.000000"] / 1000,
    }


def measure(server, workload, sock, args):
    with Running(server, sock) as running:
        before = running.cpu_seconds()
        figures = fio_over(running.uri(), workload, args)
        cpu = running.cpu_seconds() - before
    if cpu <= 0:
        raise BenchError(f"{server.name} used no CPU: who answered?")
    figures["cpu_us"] = cpu / figures["requests"] * 1e6
    return figures


def compare(servers, workload, sock, args):
    runs = {server.name: [] for server in servers}
    for round_ in range(args.rounds):
        turn = round_ % len(servers)
        for server in servers[turn:] + servers[:turn]:
            progress(f"{workload.title}: round {round_ + 1}/{args.rounds}, {server.name}")
            runs[server.name].append(measure(server, workload, sock, args))
    return summarize(servers, workload, runs)


METRICS = ("iops", "mb_s", "p50_us", "p99_us", "cpu_us")


def summarize(servers, workload, runs):
    base = runs[servers[0].name]
    rows = []
    for server in servers:
        own = runs[server.name]
        row = {"server": server.name}
        row.update({m: statistics.median(run[m] for run in own) for m in METRICS})
        if server is not servers[0]:
            # Of the first server to this one, in pairs of the same round.
            row["ratio"] = {
                m: statistics.median(a[m] / b[m] for a, b in zip(base, own)) for m in METRICS
            }
        row["runs"] = own
        rows.append(row)
    return {
        "workload": workload.key,
        "title": workload.title,
        "block_size": workload.block,
        "depth": workload.depth,
        "clients": workload.clients,
        "servers": rows,
    }


# ---------------------------------------------------------------------------- showing


def show(result):
    first = result["servers"][0]["server"]
    width = max(len(row["server"]) for row in result["servers"])
    print(f"\n{result['title']}")
    print(f"  {'':{width}}        IOPS      MB/s    p99 µs   CPU µs    {first} against it")
    print(f"  {'':{width}}                                  a req.      IOPS     p99     CPU")
    for row in result["servers"]:
        line = (
            f"  {row['server']:{width}} {row['iops']:>11,.0f} {row['mb_s']:>9,.0f}"
            f" {row['p99_us']:>9,.0f} {row['cpu_us']:>8.2f}"
        )
        if ratio := row.get("ratio"):
            line += f"    {ratio['iops']:>6.2f}x {ratio['p99_us']:>6.2f}x {ratio['cpu_us']:>6.2f}x"
        print(line)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--policy", default="fifo",
                        help="Tidegate's policies, separated by commas (default: %(default)s)")  # fmt: skip
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=BINARY",
                        help="another build of Tidegate, such as the one before a change")  # fmt: skip
    parser.add_argument("--device-depth", type=int,
                        help="`depth` of Tidegate's device (default: that of a device)")  # fmt: skip
    parser.add_argument("--servers", default="tidegate,nbdkit,qemu-nbd,qsd",
                        help="servers, separated by commas; ratios are to the first (default: all)")  # fmt: skip
    parser.add_argument("--only", default="",
                        help="only workloads whose keys contain this, such as d32 or c2")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="length of each run (default: %(default)s)")
    parser.add_argument("--size-mib", type=int, default=1024, help="size of the file (default: %(default)s)")
    parser.add_argument("--directory", default="/dev/shm", help="directory of the file (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    args = parser.parse_args()
    args.size = args.size_mib * MIB
    if args.rounds < 1 or args.seconds < 1 or args.size % (4 * MIB) or args.size <= 0:
        parser.error("--rounds and --seconds are at least 1, --size-mib is a multiple of 4")
    args.names = args.servers.split(",")
    if wrong := [build for build in args.beside if not all(build.partition("="))]:
        parser.error(f"--beside {wrong[0]}: a name and a binary, for example before=/tmp/tidegate")
    args.beside = {
        name: Path(binary) for name, _, binary in (build.partition("=") for build in args.beside)
    }
    if unknown := [name for name in args.names if name not in MAKERS]:
        parser.error(f"--servers: no {unknown[0]!r}; there are: {', '.join(MAKERS)}")
    args.workloads = [w for w in WORKLOADS if args.only in w.key]
    if not args.workloads:
        parser.error(f"--only: none of {', '.join(w.key for w in WORKLOADS)}")
    return args


def run(args):
    for tool in ("fio", "nbdcopy"):
        if not shutil.which(tool):
            raise BenchError(f"needs {tool}: make setup")
    free = shutil.disk_usage(args.directory).free
    if free < args.size + 64 * MIB:
        raise BenchError(f"{args.directory} has {free // MIB} MiB free, {args.size_mib} are needed")

    results = []
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as socket_dir,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=args.directory) as disk_dir,
    ):
        directory, disk = Path(socket_dir), Path(disk_dir) / "disk.raw"
        sock = directory / "nbd.sock"
        progress(f"writing {args.size_mib} MiB")
        prefill(disk, args.size)
        servers, skipped = make_servers(args.names, args, disk, directory)
        if skipped and os.environ.get("CI") == "true":
            raise BenchError(f"missing: {skipped}")
        host = {
            "processor": processor(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "load_at_start": os.getloadavg()[0],
            "fio": first_line("fio", "--version"),
            "versions": {server.name: server.version for server in servers},
            "skipped": skipped,
        }
        if not args.json:
            print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
                  f" load {host['load_at_start']:.1f} at the start, {host['fio']}")  # fmt: skip
            print(f"{args.size_mib} MiB on {args.directory}, medians of {args.rounds} rounds"
                  f" of {args.seconds} s")  # fmt: skip
            for server in servers:
                print(f"  {server.name}: {server.version}")
            for what in skipped:
                print(f"  skipped: {what}")
        for server in servers:
            progress(f"comparing what {server.name} serves")
            check_bytes(server, sock, disk)
        for workload in args.workloads:
            results.append(compare(servers, workload, sock, args))
            progress("")
            if not args.json:
                show(results[-1])
                sys.stdout.flush()
    if args.json:
        options = {"rounds": args.rounds, "seconds": args.seconds, "size": args.size}
        print(json.dumps({"host": host, "options": options, "workloads": results}, indent=2))


if __name__ == "__main__":
    sys.exit(run_command("bench-nbd", run, parse_args))
