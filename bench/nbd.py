#!/usr/bin/env python3
"""Serving NBD: Tidegate beside other servers and beside the floor, in one table.

The floor is a server of one small file (nbd_floor.c) that has a thread a connection and only moves
the same bytes: what a server costs that decides nothing. The load comes from a small client that
batches (nbd_client.c), because fio uses up a core before the faster servers do, and from fio.

Every server in turn serves the same prefilled files on tmpfs over a unix socket. One server runs at
a time; within a round all of them run a cell one after the other, so that what else the machine
does meets all of them alike, and the order rotates from round to round. Ratios are those of pairs
from the same round; medians are over rounds.

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
import time
from pathlib import Path

from measure import (
    KIB,
    MIB,
    TICK,
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

HERE = Path(__file__).resolve().parent
EXPORTS = ["d0", "d1"]
FIO_RW = {"read": "randread", "write": "randwrite", "mixed": "randrw", "fsync": "randwrite"}
FLUSH_AFTER_WRITES = 4
READ_PERCENT = 70

EPILOG = """\
A cell's key says what it runs, and --only takes parts of keys:
  batch-read-4k-d32-c2-v1   the batching client, random reads of 4 KiB, depth
                            32, 2 clients on 1 device
  client:   batch, or fio (fio's nbd engine)
  requests: read, write, mixed (70 % reads), fsync (a flush after 4 writes)
  devices:  with 2, every other client uses a disk of another device

Without --all a selection of cells is run. CPU per request says most: it hardly
depends on what else the machine does, unlike IOPS, and unlike IOPS it goes on
telling servers apart where the client is the limit. `others` is how many cores
other programs used meanwhile: where it is not near 0, compare CPU only.

examples:
  make bench-nbd
  make bench-nbd ARGS="--only batch-read-4k --rounds 5"
  make bench-nbd ARGS="--servers tidegate,nbdkit,qemu-nbd,qsd,floor"
  make bench-nbd ARGS="--beside before=/tmp/tidegate --servers tidegate,floor"
"""


# ---------------------------------------------------------------------------- cells


class Cell:
    """One load: who asks, for what, how deep, how many clients on how many devices."""

    def __init__(self, client, rw, kib, depth, clients, devices):
        self.client, self.rw, self.block = client, rw, kib * KIB
        self.depth, self.clients, self.devices = depth, clients, devices

    @property
    def key(self):
        size = f"{self.block // KIB}k"
        return f"{self.client}-{self.rw}-{size}-d{self.depth}-c{self.clients}-v{self.devices}"


QUICK = [
    Cell("batch", "read", 4, 1, 1, 1),
    Cell("batch", "read", 4, 32, 1, 1),
    Cell("batch", "read", 4, 128, 1, 1),
    Cell("batch", "read", 4, 32, 2, 1),
    Cell("batch", "read", 4, 32, 2, 2),
    Cell("batch", "read", 128, 32, 1, 1),
    Cell("batch", "write", 4, 32, 1, 1),
    Cell("batch", "mixed", 4, 32, 1, 1),
    Cell("batch", "fsync", 4, 32, 1, 1),
    Cell("fio", "read", 4, 1, 1, 1),
    Cell("fio", "read", 4, 32, 1, 1),
    Cell("fio", "read", 4, 32, 2, 1),
]

ALL = [
    Cell(client, rw, kib, depth, clients, devices)
    for client in ("batch", "fio")
    for rw in FIO_RW
    for kib in (4, 128)
    for clients in (1, 2, 4, 8)
    for devices in (1, 2)
    if devices <= clients
    for depth in (1, 32, 128)
]


# ---------------------------------------------------------------------------- servers


def compile_program(name, directory):
    """Compiles a program of this folder; returns its path."""
    program = directory / name
    command = ["cc", "-O2", "-pthread", "-o", str(program), str(HERE / f"{name}.c")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{made.stderr}")
    return program


def qemu_aio(program, args_for, directory):
    """io_uring where this build and kernel offer it, threads otherwise."""
    sock = directory / "probe.sock"
    try:
        with Running(Server(program, "", lambda s: args_for("io_uring", s)), sock):
            return "io_uring"
    except BenchError:
        return "threads"


def make_servers(args, disks, directory):
    servers, skipped = [], []
    for name in args.names:
        tool = {"nbdkit": "nbdkit", "qemu-nbd": "qemu-nbd", "qsd": "qemu-storage-daemon"}.get(name)
        if tool and not shutil.which(tool):
            skipped.append(f"{name}: needs {tool}")
            continue
        servers.extend(MAKERS[name](args, disks, directory))
    return servers, skipped


def make_tidegate(args, disks, directory):
    builds = {"tidegate": Path(args.tidegate), **args.beside}
    return [
        server
        for name, binary in builds.items()
        for server in make_build(name, binary.resolve(), args, disks, directory)
    ]


def make_build(name, binary, args, disks, directory):
    """One build of Tidegate, with each policy."""
    if not os.access(binary, os.X_OK):
        raise BenchError(f"{binary} is not there; build it with: make build")
    version = first_line(str(binary), "--version")

    def command_for(policy):
        def command(sock):
            config = directory / "tidegate.toml"
            config.write_text(tidegate_config(policy, args, disks, directory, sock))
            return [str(binary), "serve", str(config)]

        return command

    return [
        Server(f"{name} {policy}", version, command_for(policy), EXPORTS[0])
        for policy in args.policy.split(",")
    ]


def tidegate_config(policy, args, disks, directory, sock):
    """A device, a VM and a disk for each export; objectives, unless the policy has none."""
    depth = f"depth = {args.device_depth}\n" if args.device_depth else ""
    text = (
        f'[control]\nsocket = "{directory}/control.sock"\n'
        f'[[listen]]\nunix = "{sock}"\nexports = {json.dumps(EXPORTS)}\n'
    )
    for export in EXPORTS:
        text += f'[[device]]\nname = "of-{export}"\nkind = "file"\npolicy = "{policy}"\n{depth}'
        text += f'[[vm]]\nname = "{export}"\ndevice = "of-{export}"\n'
        if policy != "fifo":
            text += '[vm.objective]\nreservation = "1000 IOPS"\nlimit = "2000000 IOPS"\n'
        text += f'[[vm.disk]]\npath = "{disks / export}"\nformat = "raw"\n'
    return text


def make_nbdkit(_args, disks, _directory):
    def command(sock):
        return ["nbdkit", "-f", "-U", str(sock), "file", f"dir={disks}"]

    return [Server("nbdkit file", first_line("nbdkit", "--version"), command, EXPORTS[0])]


def make_qemu_nbd(_args, disks, directory):
    """It has one export, so cells with two devices leave it out."""

    def command(aio, sock):
        return ["qemu-nbd", "--format=raw", "--persistent", "--shared=16", "--cache=writeback",
                f"--aio={aio}", f"--socket={sock}", f"--export-name={EXPORTS[0]}",
                str(disks / EXPORTS[0])]  # fmt: skip

    aio = qemu_aio("qemu-nbd", command, directory)
    version = first_line("qemu-nbd", "--version")
    return [Server(QEMU_NBD + aio, version, lambda sock: command(aio, sock), EXPORTS[0])]


QEMU_NBD = "qemu-nbd "


def make_qsd(_args, disks, directory):
    def command(aio, sock):
        words = ["qemu-storage-daemon",
                 "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=16"]  # fmt: skip
        for export in EXPORTS:
            words += ["--blockdev",
                      f"driver=file,node-name={export},filename={disks / export},aio={aio}",
                      "--export",
                      f"type=nbd,id=e{export},node-name={export},name={export},writable=on"]  # fmt: skip
        return words

    aio = qemu_aio("qemu-storage-daemon", command, directory)
    version = first_line("qemu-storage-daemon", "--version")
    return [Server(f"qemu-storage-daemon {aio}", version, lambda s: command(aio, s), EXPORTS[0])]


def make_floor(_args, disks, directory):
    program = compile_program("nbd_floor", directory)
    version = "a thread a connection, two copies, nothing else"
    return [Server("floor", version, lambda s: [str(program), str(s), str(disks)], EXPORTS[0])]


MAKERS = {
    "tidegate": make_tidegate,
    "nbdkit": make_nbdkit,
    "qemu-nbd": make_qemu_nbd,
    "qsd": make_qsd,
    "floor": make_floor,
}


# ---------------------------------------------------------------------------- measuring


def check_bytes(server, sock, disks):
    """What the server serves is the file: a fast answer must be a true one too."""
    with Running(server, sock) as running:
        copy = subprocess.Popen(
            ["nbdcopy", running.uri(), "-"], stdout=subprocess.PIPE, preexec_fn=die_with_parent
        )
        try:
            wanted = str(disks / server.export)
            same = subprocess.run(["cmp", "-", wanted], stdin=copy.stdout, check=False)
            copy.stdout.close()
            if copy.wait() or same.returncode:
                raise BenchError(f"{server.name} serves other bytes than the file has")
        finally:
            if copy.poll() is None:
                copy.kill()
                copy.wait()


def load_by_batches(sock, cell, args):
    """The figures of a cell by the batching client, which has the first half of each disk."""
    command = [str(args.client_program), str(sock), ",".join(EXPORTS[: cell.devices]), cell.rw,
               str(cell.block), str(cell.depth), str(cell.clients), str(args.seconds),
               str(args.size // 2)]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=args.seconds + 60,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    if done.returncode:
        raise BenchError(f"{cell.key}: {done.stderr.strip()}")
    figures = json.loads(done.stdout)
    figures["iops"] = figures["requests"] / figures["seconds"]
    figures["client_us"] = figures.pop("cpu_us")
    return figures


def load_by_fio(sock, cell, args):
    """The figures of a cell by fio, which has the second half of each disk: it writes other data
    than the batching client expects."""
    part = args.size // 2 // cell.clients
    arguments = ["--ioengine=nbd", f"--rw={FIO_RW[cell.rw]}", f"--rwmixread={READ_PERCENT}",
                 f"--bs={cell.block}", f"--iodepth={cell.depth}", f"--size={part}",
                 "--time_based=1", f"--runtime={args.seconds}", "--norandommap=1",
                 "--group_reporting=1", "--unified_rw_reporting=1", "--clat_percentiles=0",
                 "--lat_percentiles=1", "--percentile_list=50:99"]  # fmt: skip
    if cell.rw == "fsync":
        arguments.append(f"--fsync={FLUSH_AFTER_WRITES}")
    for number in range(cell.clients):
        export = EXPORTS[number % cell.devices]
        arguments += [f"--name=c{number}", f"--uri=nbd+unix:///{export}?socket={sock}",
                      f"--offset={args.size // 2 + number * part}"]  # fmt: skip
    jobs = run_fio(arguments, args.seconds + 60)
    if len(jobs) != 1 or jobs[0]["error"]:
        raise BenchError(f"{cell.key}: fio reports {len(jobs)} groups or an error")
    job, every = jobs[0], jobs[0]["mixed"]
    flushes = job.get("sync", {}).get("total_ios", 0) if cell.rw == "fsync" else 0
    requests = every["total_ios"] + flushes
    # A share of one core, by job; the jobs' run time is their sum.
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return {
        "requests": requests,
        "seconds": every["runtime"] / 1000,
        "iops": requests / (every["runtime"] / 1000),
        "mean_us": every["lat_ns"]["mean"] / 1000,
        "p50_us": every["lat_ns"]["percentile"]["50.000000"] / 1000,
        "p99_us": every["lat_ns"]["percentile"]["99.000000"] / 1000,
        "client_us": cpu / max(requests, 1) * 1e6,
    }


def believed(figures, cell, args):
    """A run's figures, once they add up."""
    wanted = cell.depth * cell.clients
    in_flight = figures["iops"] * figures["mean_us"] / 1e6
    # After its time a client only waits for what is outstanding.
    asking = min(1.0, args.seconds / max(figures["seconds"], 0.001))
    # fio's latencies leave out its flushes.
    counts = cell.rw != "fsync" or cell.client == "batch"
    problems = [
        what
        for what, wrong in {
            "no requests": figures["requests"] == 0,
            f"ran {figures['seconds']:.2f} s": figures["seconds"] < 0.9 * args.seconds,
            f"{in_flight:.1f} in flight instead of {wanted}": counts
            and not 0.7 * wanted * asking <= in_flight <= 1.1 * wanted + 1,
        }.items()
        if wrong
    ]
    if problems:
        raise BenchError(f"{cell.key}: figures cannot be believed: {problems}, {figures}")
    return figures


def machine_seconds():
    """CPU seconds that all programs have used since the machine started."""
    user, nice, system, _idle, _wait, irq, softirq, *_ = (
        int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICK


def measure(server, cell, sock, args):
    load = load_by_batches if cell.client == "batch" else load_by_fio
    with Running(server, sock) as running:
        before, all_before, since = running.cpu_seconds(), machine_seconds(), time.monotonic()
        figures = believed(load(sock, cell, args), cell, args)
        cpu = running.cpu_seconds() - before
        everything, elapsed = machine_seconds() - all_before, time.monotonic() - since
    if cpu <= 0:
        raise BenchError(f"{server.name} used no CPU: who answered?")
    figures["cpu_us"] = cpu / figures["requests"] * 1e6
    figures["mb_s"] = figures["iops"] * cell.block / 1e6
    client = figures["client_us"] * figures["requests"] / 1e6
    figures["others"] = max(0.0, (everything - cpu - client) / elapsed)
    return figures


def compare(servers, cell, sock, args):
    if cell.devices > 1:
        servers = [server for server in servers if not server.name.startswith(QEMU_NBD)]
    runs = {server.name: [] for server in servers}
    for round_ in range(args.rounds):
        turn = round_ % len(servers)
        for server in servers[turn:] + servers[:turn]:
            progress(f"{cell.key}: round {round_ + 1}/{args.rounds}, {server.name}")
            runs[server.name].append(measure(server, cell, sock, args))
    return summarize(servers, cell, runs)


METRICS = ("iops", "mb_s", "p50_us", "p99_us", "cpu_us", "client_us", "others")
RATIOS = ("iops", "p50_us", "p99_us", "cpu_us")


def summarize(servers, cell, runs):
    base = runs[servers[0].name]
    rows = []
    for server in servers:
        own = runs[server.name]
        row = {"server": server.name}
        row.update({m: statistics.median(run[m] for run in own) for m in METRICS})
        if server is not servers[0]:
            # Of the first server to this one, in pairs of the same round.
            row["ratio"] = {
                m: statistics.median(a[m] / b[m] for a, b in zip(base, own)) for m in RATIOS
            }
        row["runs"] = own
        rows.append(row)
    return {"cell": cell.key, **vars(cell), "servers": rows}


# ---------------------------------------------------------------------------- showing


def show_head(servers):
    first = servers[0].name
    print(f"\n{'':21} {'':>10} {'p50':>7} {'p99':>8} {'CPU µs':>7} {'':>6}   {first} against it")
    print(f"{'':21} {'IOPS':>10} {'µs':>7} {'µs':>8} {'a req.':>7} {'others':>6}"
          f"   {'IOPS':>5} {'p99':>6} {'CPU':>6}")  # fmt: skip


def show(result):
    print(result["cell"])
    for row in result["servers"]:
        line = (
            f"  {row['server'][:19]:19} {row['iops']:>10,.0f} {row['p50_us']:>7,.0f}"
            f" {row['p99_us']:>8,.0f} {row['cpu_us']:>7.2f} {row['others']:>6.1f}"
        )
        if ratio := row.get("ratio"):
            line += f"   {ratio['iops']:>5.2f}x{ratio['p99_us']:>6.2f}x{ratio['cpu_us']:>6.2f}x"
        print(line)


def parse_args():
    parser = argparse.ArgumentParser(
        prog="make bench-nbd",
        usage='make bench-nbd [ARGS="OPTIONS"]',
        description="Serving NBD: Tidegate beside other servers and beside the floor, a small\n"
        "server that only moves the same bytes. Prints IOPS, latencies and the\n"
        "server's CPU for each request.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--all", action="store_true",
                        help=f"all {len(ALL)} cells instead of {len(QUICK)}; takes over two hours")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the cells' keys and end")
    parser.add_argument("--only", default="", metavar="PART",
                        help="only cells, of all, whose keys contain one of these parts,\n"
                        "separated by commas")  # fmt: skip
    parser.add_argument("--servers", default="tidegate,nbdkit,floor",
                        help=f"of {', '.join(MAKERS)}; ratios are to the first"
                        " (default: %(default)s)")  # fmt: skip
    parser.add_argument("--tidegate", default="target/release/tidegate", metavar="BINARY",
                        help="the program (default: %(default)s)")  # fmt: skip
    parser.add_argument("--policy", default="slo",
                        help="Tidegate's policies, separated by commas; objectives are set"
                        " but under fifo (default: %(default)s)")  # fmt: skip
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=BINARY",
                        help="another build of Tidegate, such as the one before a change")  # fmt: skip
    parser.add_argument("--device-depth", type=int, metavar="N",
                        help="`depth` of Tidegate's devices (default: that of a device)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each server in a cell (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=int, default=2, metavar="N",
                        help="length of each run (default: %(default)s)")  # fmt: skip
    parser.add_argument("--size-mib", type=int, default=512, metavar="N",
                        help="size of each of the two files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", default="/dev/shm",
                        help="directory of the files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
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
    cells = ALL if args.all or args.only else QUICK
    parts = args.only.split(",")
    args.cells = [cell for cell in cells if any(part in cell.key for part in parts)]
    if not args.cells:
        parser.error(f"--only {args.only}: no cell has that; --list prints all with --all")
    return args


def describe_host(args, servers, skipped):
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "versions": {server.name: server.version for server in servers},
        "skipped": skipped,
    }


def run(args):
    if args.list:
        print("\n".join(cell.key for cell in args.cells))
        return
    tools = ["cc", "nbdcopy"] + ["fio"] * any(cell.client == "fio" for cell in args.cells)
    for tool in tools:
        if not shutil.which(tool):
            raise BenchError(f"needs {tool}: make setup")
    free, needed = shutil.disk_usage(args.directory).free, len(EXPORTS) * args.size + 64 * MIB
    if free < needed:
        raise BenchError(
            f"{args.directory} has {free // MIB} MiB free, {needed // MIB} are needed"
        )

    results = []
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as socket_dir,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=args.directory) as disk_dir,
    ):
        directory, disks = Path(socket_dir), Path(disk_dir)
        sock = directory / "nbd.sock"
        progress(f"writing {len(EXPORTS)} x {args.size_mib} MiB")
        for export in EXPORTS:
            prefill(disks / export, args.size)
        args.client_program = compile_program("nbd_client", directory)
        servers, skipped = make_servers(args, disks, directory)
        if not servers:
            raise BenchError(f"nothing to measure: {skipped}")
        if skipped and os.environ.get("CI") == "true":
            raise BenchError(f"missing: {skipped}")
        host = describe_host(args, servers, skipped)
        progress("")
        if not args.json:
            print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
                  f" load {host['load_at_start']:.1f} at the start")  # fmt: skip
            print(f"{len(EXPORTS)} x {args.size_mib} MiB on {args.directory}, medians of"
                  f" {args.rounds} rounds of {args.seconds} s")  # fmt: skip
            for server in servers:
                print(f"  {server.name}: {server.version}")
            for what in skipped:
                print(f"  skipped: {what}")
        for server in servers:
            progress(f"comparing what {server.name} serves")
            check_bytes(server, sock, disks)
        progress("")
        if not args.json:
            show_head(servers)
        for cell in args.cells:
            results.append(compare(servers, cell, sock, args))
            progress("")
            if not args.json:
                show(results[-1])
                sys.stdout.flush()
    if args.json:
        options = {"rounds": args.rounds, "seconds": args.seconds, "size": args.size}
        print(json.dumps({"host": host, "options": options, "cells": results}, indent=2))


if __name__ == "__main__":
    sys.exit(run_command("bench-nbd", run, parse_args))
