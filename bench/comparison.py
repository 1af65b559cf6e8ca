"""What comparisons of servers have in common: loads run in rounds, paired figures, the table."""

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
)

HERE = Path(__file__).resolve().parent
METRICS = ("iops", "mb_s", "p50_us", "p99_us", "cpu_us", "client_us", "others")
RATIOS = ("iops", "p50_us", "p99_us", "cpu_us")


def compile_program(name, directory):
    """Compiles a program of this folder; returns its path."""
    program = directory / name
    command = ["cc", "-O2", "-pthread", "-o", str(program), str(HERE / f"{name}.c")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{made.stderr}")
    return program


# ---------------------------------------------------------------------------- options


def parser_of(target, description, epilog, quick, every):
    """A parser with the options of every comparison, of `every` cell or the `quick` ones."""
    parser = argparse.ArgumentParser(
        prog=f"make {target}",
        usage=f'make {target} [ARGS="OPTIONS"]',
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--all", action="store_true",
                        help=f"all {len(every)} cells instead of {len(quick)}")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the cells' keys and end")
    parser.add_argument("--only", default="", metavar="PART",
                        help="only cells, of all, whose keys contain one of these parts,\n"
                        "separated by commas")  # fmt: skip
    parser.add_argument("--tidegate", default="target/release/tidegate", metavar="BINARY",
                        help="the program (default: %(default)s)")  # fmt: skip
    parser.add_argument("--policy", default="slo",
                        help="Tidegate's policies, separated by commas; objectives are set"
                        " but under fifo (default: %(default)s)")  # fmt: skip
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=BINARY",
                        help="another build of Tidegate, such as the one before a change")  # fmt: skip
    parser.add_argument("--with", action="append", default=[], metavar="NAME=FILE", dest="further",
                        help="the same build with the lines of FILE added to its configuration,"
                        " in which {directory} is an empty directory")  # fmt: skip
    parser.add_argument("--device-depth", type=int, metavar="N",
                        help="`depth` of Tidegate's devices (default: that of a device)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each server in a cell (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=int, default=2, metavar="N",
                        help="length of each run (default: %(default)s)")  # fmt: skip
    parser.add_argument("--size-mib", type=int, default=512, metavar="N",
                        help="size of each disk's file (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", default="/dev/shm",
                        help="directory of the files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    return parser


def parse_options(parser, makers, quick, every):
    """The parsed arguments, with the names of servers, the builds of Tidegate and the cells: of `every`
    one those that were asked for, or the `quick` ones."""
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
    if wrong := [lines for lines in args.further if not all(lines.partition("="))]:
        parser.error(f"--with {wrong[0]}: a name and a file, for example recording=/tmp/recording.toml")
    args.further = {
        name: Path(file).read_text() for name, _, file in (it.partition("=") for it in args.further)
    }
    if unknown := [name for name in args.names if name not in makers]:
        parser.error(f"--servers: no {unknown[0]!r}; there are: {', '.join(makers)}")
    cells = every if args.all or args.only else quick
    parts = args.only.split(",")
    args.cells = [cell for cell in cells if any(part in cell.key for part in parts)]
    if not args.cells:
        parser.error(f"--only {args.only}: no cell has that; --list prints all with --all")
    return args


# ---------------------------------------------------------------------------- servers


def qemu_aio(program, args_for, sock):
    """io_uring where this build and kernel offer it, threads otherwise."""
    try:
        with Running(Server(program, "", lambda s: args_for("io_uring", s)), sock):
            return "io_uring"
    except BenchError:
        return "threads"


def make_servers(args, makers, tools, disks, directory):
    """The servers that were asked for, and those that lack one of the `tools`, by name of server."""
    servers, skipped = [], []
    for name in args.names:
        if name in tools and not shutil.which(tools[name]):
            skipped.append(f"{name}: needs {tools[name]}")
            continue
        servers.extend(makers[name](args, disks, directory))
    if not servers:
        raise BenchError(f"nothing to measure: {skipped}")
    if skipped and os.environ.get("CI") == "true":
        raise BenchError(f"missing: {skipped}")
    return servers, skipped


def tidegate_servers(args, disks, directory, devices, listener):
    """All builds of Tidegate with each policy. `devices` has the device of each export, and `listener`
    makes the lines of the listener from the socket."""
    servers = []
    builds = {"tidegate": Path(args.tidegate), **args.beside}
    variants = [(name, binary, "") for name, binary in builds.items()]
    variants += [(name, Path(args.tidegate), lines) for name, lines in args.further.items()]
    for name, binary, lines in variants:
        binary = binary.resolve()
        if not os.access(binary, os.X_OK):
            raise BenchError(f"{binary} is not there; build it with: make build")

        def command_for(policy, binary=binary, lines=lines):
            def command(sock):
                further = lines.replace("{directory}", tempfile.mkdtemp(dir=directory))
                config = directory / "tidegate.toml"
                text = tidegate_config(policy, args, disks, directory, devices)
                config.write_text(text + f"[[listen]]\n{listener(sock)}\n{further}")
                return [str(binary), "serve", str(config)]

            return command

        version = first_line(str(binary), "--version")
        servers += [
            Server(f"{name} {policy}", version, command_for(policy), next(iter(devices)))
            for policy in args.policy.split(",")
        ]
    return servers


def tidegate_config(policy, args, disks, directory, devices):
    """The devices, with a VM and a disk for each export; objectives, unless the policy has none."""
    depth = f"depth = {args.device_depth}\n" if args.device_depth else ""
    text = f'[control]\nsocket = "{directory}/control.sock"\n'
    for device in dict.fromkeys(devices.values()):
        text += f'[[device]]\nname = "{device}"\nkind = "file"\npolicy = "{policy}"\n{depth}'
    for export, device in devices.items():
        text += f'[[vm]]\nname = "{export}"\ndevice = "{device}"\n'
        if policy != "fifo":
            text += '[vm.objective]\nreservation = "1000 IOPS"\nlimit = "2000000 IOPS"\n'
        text += f'[[vm.disk]]\npath = "{disks / export}"\nformat = "raw"\n'
    return text


# ---------------------------------------------------------------------------- measuring


def run_client(command, cell, seconds):
    """The figures that a client of this folder prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds + 60,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    if done.returncode:
        raise BenchError(f"{cell.key}: {done.stderr.strip()}")
    figures = json.loads(done.stdout)
    figures["iops"] = figures["requests"] / figures["seconds"]
    figures["client_us"] = figures.pop("cpu_us")
    return figures


def believed(figures, cell, args, counts=True):
    """A run's figures, once they add up. Unless `counts`, latencies leave out some requests."""
    wanted = cell.depth * cell.clients
    in_flight = figures["iops"] * figures["mean_us"] / 1e6
    # After its time a client only waits for what is outstanding.
    asking = min(1.0, args.seconds / max(figures["seconds"], 0.001))
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


def describe_host(servers, skipped):
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "versions": {server.name: server.version for server in servers},
        "skipped": skipped,
    }


def show_host(host, servers, files, args):
    print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
          f" load {host['load_at_start']:.1f} at the start")  # fmt: skip
    print(f"{files} on {args.directory}, medians of {args.rounds} rounds of {args.seconds} s")
    for server in servers:
        print(f"  {server.name}: {server.version}")
    for what in host["skipped"]:
        print(f"  skipped: {what}")


class Comparison:
    """Servers that serve the same files under the same loads, in a directory of their own. A subclass
    says which files and servers there are, and how a load is run."""

    exports = ()
    client = ""
    """Program of this folder that makes the load."""
    makers = {}
    """Functions that make the servers of a name."""
    tools = {}
    """Tools that servers need, by the servers' names."""

    def __init__(self, args):
        self.args = args

    def needs(self):
        """Tools without which nothing can be measured."""
        return ["cc"]

    def socket(self):
        return self.directory / "bench.sock"

    def check(self, server):
        """Ends the comparison if a server serves other bytes than the files have."""

    def load(self, running, cell):
        """The figures of a cell by a server that runs."""
        raise NotImplementedError

    def has_cell(self, server, cell):
        return True

    def run(self):
        args = self.args
        if args.list:
            print("\n".join(cell.key for cell in args.cells))
            return
        for tool in self.needs():
            if not shutil.which(tool):
                raise BenchError(f"needs {tool}: make setup")
        free = shutil.disk_usage(args.directory).free
        needed = len(self.exports) * args.size + 64 * MIB
        if free < needed:
            raise BenchError(
                f"{args.directory} has {free // MIB} MiB free, {needed // MIB} are needed"
            )
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-bench-") as socket_dir,
            tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=args.directory) as disk_dir,
        ):
            self.directory, self.disks = Path(socket_dir), Path(disk_dir)
            progress(f"writing {len(self.exports)} x {args.size_mib} MiB")
            for export in self.exports:
                prefill(self.disks / export, args.size)
            self.client_program = compile_program(self.client, self.directory)
            servers, skipped = make_servers(
                args, self.makers, self.tools, self.disks, self.directory
            )
            self.run_cells(servers, describe_host(servers, skipped))

    def run_cells(self, servers, host):
        args, results = self.args, []
        progress("")
        if not args.json:
            show_host(host, servers, f"{len(self.exports)} x {args.size_mib} MiB", args)
        for server in servers:
            progress(f"comparing what {server.name} serves")
            self.check(server)
        progress("")
        if not args.json:
            show_head(servers)
        for cell in args.cells:
            results.append(self.compare(servers, cell))
            progress("")
            if not args.json:
                show(results[-1])
                sys.stdout.flush()
        if args.json:
            options = {"rounds": args.rounds, "seconds": args.seconds, "size": args.size}
            print(json.dumps({"host": host, "options": options, "cells": results}, indent=2))

    def compare(self, servers, cell):
        """A cell by all servers in turn."""
        servers = [server for server in servers if self.has_cell(server, cell)]
        rounds = self.args.rounds
        runs = {server.name: [] for server in servers}
        for round_ in range(rounds):
            turn = round_ % len(servers)
            for server in servers[turn:] + servers[:turn]:
                progress(f"{cell.key}: round {round_ + 1}/{rounds}, {server.name}")
                runs[server.name].append(self.measure(server, cell))
        return summarize(servers, cell, runs)

    def measure(self, server, cell):
        """The figures of a run, with the server's CPU."""
        with Running(server, self.socket()) as running:
            before, all_before, since = running.cpu_seconds(), machine_seconds(), time.monotonic()
            figures = self.load(running, cell)
            cpu = running.cpu_seconds() - before
            everything, elapsed = machine_seconds() - all_before, time.monotonic() - since
        if cpu <= 0:
            raise BenchError(f"{server.name} used no CPU: who answered?")
        figures["cpu_us"] = cpu / figures["requests"] * 1e6
        figures["mb_s"] = figures["iops"] * cell.block / 1e6
        client = figures["client_us"] * figures["requests"] / 1e6
        figures["others"] = max(0.0, (everything - cpu - client) / elapsed)
        return figures
