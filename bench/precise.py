#!/usr/bin/env python3
"""Holding a VM's bandwidth precisely, live: fio over NBD with requests of 4 to 128
KiB, at 30 MB/s.

Three measurements, a table each for every store:

  alone       the VM by itself: the error of its mean, V, and its first second.
  stall       the server stands still (SIGSTOP) for a second in the middle, as
              a machine that stalls does: how much of that second is missing in
              the end. A target makes up for it, a limit does not.
  neighbours  the VM beside two without an objective that ask for all there is
              (128 KiB, depth 128 each).

Stores are `array`, an emulated RAID 0 of 16 hard disks, a model in real time,
from which the VM reads sequentially; and `disk`, files on this machine's own
disk that are read at random and past the page cache (nbdkit cannot, and reads
through it). The same is measured of qemu-storage-daemon's throttle group and of
nbdkit's rate filter, which are limits and have no minimum; their array is one
that Tidegate serves them over NBD under the policy fifo. With `--rw randread`
the seeks of the array's disks add to the floor: V is 0.27 % in virtual time,
too, whatever paces the requests.

Samples are bytes answered in each whole second. They are exact: fio logs each
answer (write_lat_log without averaging) with its size and its millisecond, from
the first second on. By the paper's definitions 2.1 to 2.3 (V-Cup, Li et al.,
ToS 2017), the error is that of the mean over the run, beta the mean |error|
over 10 s each, and V the mean absolute deviation of the seconds. `floor` is the
V of the same requests, each answered exactly when its last byte is due: what
their sizes alone cause.

A run in which this machine itself stood still (a sleeper woke 100 ms late) is
discarded and repeated, up to two times; rows without a quiet run have an
asterisk. Rounds take all rows in turn; figures are medians over rounds.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import threading
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from measure import (
    KIB,
    MIB,
    BenchError,
    Running,
    Server,
    Watcher,
    first_line,
    prefill,
    processor,
    progress,
    run_command,
    run_fio,
    serve,
)

RATE = 30_000_000
# Each power of two as often as the others, to a per cent.
SIZES = "4k/17:8k/17:16k/17:32k/17:64k/16:128k/16"
LARGEST = 128 * KIB
DEPTH, BULK_DEPTH = 32, 128
NEIGHBOURS = ("bulk1", "bulk2")
BETA_SECONDS = 10
STALL_SECONDS = 1
STALL_AT = 5
TRIES = 3
PHASES = 32


# ---------------------------------------------------------------------------- figures


def error(samples):
    """By how much the mean is above the rate, definition 2.1."""
    return sum(samples) / (len(samples) * RATE) - 1


def beta(samples):
    """The mean |error| over whole intervals, definition 2.2.

    >>> beta([RATE * 11 // 10] * 10 + [RATE * 9 // 10] * 10 + [0])
    0.1
    """
    whole = range(0, len(samples) - BETA_SECONDS + 1, BETA_SECONDS)
    errors = [abs(error(samples[at : at + BETA_SECONDS])) for at in whole]
    return round(statistics.fmean(errors), 9) if errors else None


def variability(samples):
    """The mean absolute deviation, relative to the mean, definition 2.3.

    >>> round(variability([30, 33, 27, 36]), 6)
    0.095238
    """
    mean = statistics.fmean(samples)
    return statistics.fmean(abs(one - mean) for one in samples) / mean if mean else None


def floor(sizes):
    """V of requests that are answered when their last byte is due, over every phase of the seconds.

    >>> floor([RATE // 100] * 1000)
    0.0
    """
    ends = [0, *accumulate(sizes)]
    seconds = ends[-1] // RATE - 1
    if seconds < 2:
        return None
    by = lambda due: ends[bisect_right(ends, due) - 1]  # noqa: E731
    found = []
    for phase in range(PHASES):
        marks = [by(RATE * phase // PHASES + RATE * second) for second in range(seconds + 1)]
        found.append(variability([after - before for before, after in zip(marks, marks[1:])]))
    return statistics.fmean(found)


# ---------------------------------------------------------------------------- stores


class Array:
    """An emulated array; its bytes lie in memory."""

    name = "array"
    title = "An emulated array (raid0-16x250gb)"
    device = 'kind = "emulated"\nmodel = "raid0-16x250gb"\n'
    rw, depth = "read", 64

    def disk(self, _name):
        return 'size = "1 GiB"\n'

    def beneath(self, args, directory, names):
        """The array as a disk for others: served first come, first served, each VM's part as an export."""
        place = directory / "array"
        place.mkdir(exist_ok=True)
        self.socks = {name: place / f"{name}.sock" for name in names}
        for sock in self.socks.values():
            sock.unlink(missing_ok=True)
        device = f'{self.device}policy = "fifo"\ndepth = {args.depth or self.depth}\n'
        vms = [(name, self.disk(name)) for name in names]
        return [(serve(args, place, device, vms), self.socks[names[0]])]

    def qemu(self, name):
        """What qemu's block layer is told of it."""
        return f"driver=nbd,server.type=unix,server.path={self.socks[name]},export={name}"

    def nbdkit(self, name):
        """Which plugin of nbdkit serves it."""
        return ["nbd", f"uri=nbd+unix:///{name}?socket={self.socks[name]}"]


class Disk:
    """Files on this machine's disk, one for each VM."""

    name = "disk"
    device = 'kind = "file"\n'
    rw, depth = "randread", 16

    def __init__(self, args, place):
        self.title = f"This machine's disk, {args.directory}"
        self.files = {name: place / f"{name}.raw" for name in ("vm", *NEIGHBOURS)}
        for file in self.files.values():
            progress(f"writing {args.size_mib} MiB")
            prefill(file, args.size)
        os.sync()

    def disk(self, name):
        return f'path = "{self.files[name]}"\nread_only = true\nformat = "raw"\n'

    def beneath(self, _args, _directory, _names):
        return []

    def qemu(self, name):
        return f"driver=file,filename={self.files[name]},cache.direct=on,aio=threads"

    def nbdkit(self, name):
        return ["file", f"file={self.files[name]}"]


# ---------------------------------------------------------------------------- ways


class Tidegate:
    """A row: a policy, and what the VM is promised. `servers` are those to start, in order, the one that
    holds the VM last; and where each VM is to be found."""

    def __init__(self, policy, promise):
        self.title, self.policy, self.repays = f"{policy}, {promise}", policy, promise == "target"
        self.objective = f'{promise} = "{RATE // 10**6} MB/s"\n'

    def servers(self, args, directory, store, names):
        params = args.params if self.repays else ""
        policy = f'{{ name = "{self.policy}"{params and ", " + params} }}'
        depth = args.depth or store.depth
        device = f"{store.device}policy = {policy}\ndepth = {depth}\n{args.device}"
        vms = [(name, store.disk(name), self.objective if name == "vm" else "") for name in names]
        uris = {name: f"nbd+unix:///{name}?socket={directory / name}.sock" for name in names}
        for name in names:
            (directory / f"{name}.sock").unlink(missing_ok=True)
        return [(serve(args, directory, device, vms), directory / "vm.sock")], uris


class ThrottleGroup:
    """qemu-storage-daemon's; the neighbours are exports of the same daemon, without a group."""

    title, repays, program = "qemu-storage-daemon", False, "qemu-storage-daemon"

    def servers(self, args, directory, store, names):
        sock = directory / "qemu.sock"
        beneath = store.beneath(args, directory, names)
        command = [self.program, "--object", f"throttle-group,id=group,limits.bps-total={RATE}",
                   "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=16"]  # fmt: skip
        for name in names:
            command += ["--blockdev", f"{store.qemu(name)},node-name={name}-below,read-only=on"]
        command += ["--blockdev", "driver=throttle,node-name=vm-held,throttle-group=group,file=vm-below,"
                    "read-only=on"]  # fmt: skip
        for name in names:
            node = "vm-held" if name == "vm" else f"{name}-below"
            command += ["--export", f"type=nbd,id={name},node-name={node},name={name},writable=off"]
        uris = {name: f"nbd+unix:///{name}?socket={sock}" for name in names}
        return [*beneath, (Server(self.program, "", lambda _: command), sock)], uris


class RateFilter:
    """nbdkit's; the neighbours have an nbdkit of their own each, without the filter."""

    title, repays, program = "nbdkit rate filter", False, "nbdkit"

    def servers(self, args, directory, store, names):
        servers, uris = store.beneath(args, directory, names), {}
        for name in reversed(names):
            sock = directory / f"nbdkit-{name}.sock"
            held, rate = ([], []) if name != "vm" else (["--filter=rate"], [f"rate={RATE * 8}"])
            command = [self.program, "-f", "-r", *held, "-U", str(sock), *store.nbdkit(name), *rate]
            servers.append((Server(self.program, "", lambda _, command=command: command), sock))
            uris[name] = f"nbd+unix:///?socket={sock}"
        return servers, uris


WAYS = [
    Tidegate("vcup-mclock", "target"),
    Tidegate("vcup", "target"),
    Tidegate("limit", "limit"),
    ThrottleGroup(),
    RateFilter(),
]


# ---------------------------------------------------------------------------- running


def job(name, uri, rw, lines):
    return "\n".join([f"[{name}]", f"uri={uri}", f"rw={rw}", *lines])


def jobs_file(directory, uris, rw, seconds):
    """fio's job file: the VM with a log of each answer, and its neighbours."""
    # Beyond the last second, so that it is whole.
    head = ["[global]", "ioengine=nbd", "time_based", f"runtime={seconds + 1}", "norandommap",
            "size=100%", "disable_slat=1", "disable_clat=1"]  # fmt: skip
    own = [f"bssplit={SIZES}", f"iodepth={DEPTH}", f"write_lat_log={directory / 'answers'}"]
    jobs = [job("vm", uris["vm"], rw, own)]
    bulk = [f"bs={LARGEST}", f"iodepth={BULK_DEPTH}"]
    jobs += [job(name, uris[name], "randread", bulk) for name in uris if name != "vm"]
    file = directory / "jobs.fio"
    file.write_text("\n".join([*head, *jobs]) + "\n")
    return file


def answers(directory):
    """The VM's answers in order: (milliseconds, bytes)."""
    logs = list(directory.glob("answers_lat.*.log"))
    if len(logs) != 1:
        raise BenchError(f"fio left {len(logs)} logs of answers instead of one")
    rows = [line.split(",") for line in logs[0].read_text().splitlines()]
    logs[0].unlink()
    return sorted((int(row[0]), int(row[3])) for row in rows)


@contextlib.contextmanager
def stalling(process):
    """Stops a process for a while, and lets it go on whatever happens."""
    ended = threading.Event()

    def stall():
        if not ended.wait(STALL_AT):
            os.kill(process.pid, signal.SIGSTOP)
            ended.wait(STALL_SECONDS)
            os.kill(process.pid, signal.SIGCONT)

    thread = threading.Thread(target=stall, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_once(args, directory, store, way, part):
    """One run: what the VM was answered, and what its neighbours had."""
    names = ["vm", *(NEIGHBOURS if part == "neighbours" else ())]
    servers, uris = way.servers(args, directory, store, names)
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Running(server, sock)) for server, sock in servers]
        file = jobs_file(directory, uris, args.rw or store.rw, args.seconds)
        with Watcher() as watcher:
            with stalling(running[-1].process) if part == "stall" else contextlib.nullcontext():
                jobs = run_fio([str(file)], args.seconds + 60)
        found = believed(args, jobs, answers(directory))
    found["machine_stalls_s"] = watcher.stalls
    return found


def believed(args, jobs, log):
    """A run's figures, once they add up."""
    by_name = {job["jobname"]: job for job in jobs}
    vm = by_name["vm"]
    moved = vm["read"]["io_bytes"]
    logged = sum(size for _, size in log)
    if failed := [name for name, job in by_name.items() if job["error"]]:
        raise BenchError(f"errors in {', '.join(failed)}")
    if abs(moved - logged) > DEPTH * LARGEST:
        raise BenchError(f"fio's log has {logged} bytes, fio says {moved}")
    if not log or log[-1][0] < args.seconds * 1000:
        raise BenchError(f"the VM was answered for {log[-1][0] if log else 0} ms, too short")
    samples = [0] * args.seconds
    for at_ms, size in log:
        if at_ms < args.seconds * 1000:
            samples[at_ms // 1000] += size
    others = [job["read"]["bw_bytes"] for name, job in by_name.items() if name != "vm"]
    return {
        "samples": samples,
        "error": error(samples),
        "v": variability(samples),
        "beta": beta(samples),
        "floor": floor([size for _, size in log]),
        "first": samples[0] / RATE - 1,
        "lost_s": -error(samples) * args.seconds,
        "after": max(samples[STALL_AT + STALL_SECONDS :], default=0) / RATE - 1,
        "neighbours_mb_s": sum(others) / 1e6,
    }


def run_quietly(args, directory, store, way, part):
    """The first run of a few in which the machine did not stall."""
    for _ in range(TRIES):
        found = run_once(args, directory, store, way, part)
        if not found["machine_stalls_s"]:
            break
    return found


def measure(args, directory, store, part):
    runs = {way.title: [] for way in args.ways}
    for round_ in range(args.rounds):
        for way in args.ways:
            progress(f"{store.name}, {part}: round {round_ + 1}/{args.rounds}, {way.title}")
            runs[way.title].append(run_quietly(args, directory, store, way, part))
    return [summarized(way, runs[way.title], part) for way in args.ways]


def summarized(way, runs, part):
    row = {"way": way.title, "machine_stalled": any(run["machine_stalls_s"] for run in runs)}
    for key in ("error", "v", "beta", "floor", "first", "lost_s", "after", "neighbours_mb_s"):
        values = [run[key] for run in runs if run[key] is not None]
        row[key] = statistics.median(values) if values else None
    row["missed"] = missed(row, part, way.repays)
    return row | {"runs": runs}


# ---------------------------------------------------------------------------- the bars


def missed(row, part, repays):
    """Which of the bars it does not come up to."""
    beyond = {
        "alone": {
            "error": abs(row["error"]) > 0.001,
            "V": row["floor"] is not None and row["v"] > 1.25 * row["floor"],
            "burst": row["first"] > LARGEST / RATE + 0.001,
        },
        "stall": {
            "repays": repays and abs(row["lost_s"]) > 0.05,
            "limit": not repays and row["lost_s"] < 0.9 * STALL_SECONDS,
        },
        "neighbours": {
            "error": abs(row["error"]) > 0.01,
            "beta": row["beta"] is not None and row["beta"] > 0.03,
            "V": row["v"] > 0.05,
        },
    }
    return [what for what, beyond in beyond[part].items() if beyond]


BARS = {
    "alone": "The bar: error at most 0.1 %, V at most 1.25 times the floor, no more than a request too much"
             " in the first second.",  # fmt: skip
    "stall": "The bar: of a target at most 0.05 s are missing in the end, of a limit the second is.",
    "neighbours": "The bar: error at most 1 %, beta (10 s) at most 3 %, V at most 5 %.",
}
COLUMNS = {
    "alone": [("error", "error", "+.3%"), ("V", "v", ".3%"), ("floor", "floor", ".3%"),
              ("first second", "first", "+.2%")],
    "stall": [("missing, s", "lost_s", ".3f"), ("best second after", "after", "+.2%")],
    "neighbours": [("error", "error", "+.3%"), ("beta", "beta", ".3%"), ("V", "v", ".3%"),
                   ("neighbours, MB/s", "neighbours_mb_s", ",.1f")],
}  # fmt: skip
HEADS = {
    "alone": "alone",
    "stall": f"its server stopped for {STALL_SECONDS} s",
    "neighbours": f"beside two that ask for all there is ({LARGEST // KIB} KiB, depth {BULK_DEPTH} each)",
}


def show(args, store, part, rows):
    order = "sequential" if (args.rw or store.rw) == "read" else "random"
    print(f"\n{store.title}: a VM at {RATE // 10**6} MB/s, {order} reads, {HEADS[part]}")
    width = max(len(row["way"]) for row in rows) + 2
    columns = COLUMNS[part]
    print("  " + " " * width + "".join(f"{max(len(head), 9) * ' '}"[: -len(head)] + head + "   "
                                       for head, *_ in columns) + "missed")  # fmt: skip
    for row in rows:
        line = f"  {row['way'] + ('*' if row['machine_stalled'] else ''):{width}}"
        for head, key, form in columns:
            text = "-" if row[key] is None else format(row[key], form)
            line += f"{text:>{max(len(head), 9)}}   "
        print(line + (", ".join(row["missed"]) or "-"))
    print(f"  {BARS[part]}")
    if any(row["machine_stalled"] for row in rows):
        print("  * The machine itself stood still in every run.")
    sys.stdout.flush()


# ---------------------------------------------------------------------------- the command

PARTS = ("alone", "stall", "neighbours")
STORES = ("array", "disk")


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="measurements, separated by commas (default: all)")
    parser.add_argument("--store", default=",".join(STORES), help="stores, separated by commas (default: both)")
    parser.add_argument("--way", default="",
                        help="only rows whose titles begin so, separated by semicolons (default: all)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=1, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=60,
                        help="length of each run, at least 20 (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rw", choices=("randread", "read"), default="",
                        help="I/O of the VM (default: read on the array, randread on the disk)")  # fmt: skip
    parser.add_argument("--depth", type=int, default=0,
                        help="depth of Tidegate's device (default: 64 for the array, 16 for the disk)")  # fmt: skip
    parser.add_argument("--params", default="", help="parameters of policies with a target, such as"
                        " 'max_ml = 64'")  # fmt: skip
    parser.add_argument("--device", default="", help="more lines of [[device]], such as"
                        " 'adaptive_depth = true'")  # fmt: skip
    parser.add_argument("--size-mib", type=int, default=512,
                        help="size of each of three files on the disk (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", default="/var/tmp",
                        help="a directory on the disk to measure (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table",
                        help="format of the results (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    args.size = args.size_mib * MIB
    if args.rounds < 1 or args.seconds < 20 or args.size <= 0 or args.size % (4 * MIB):
        parser.error("--rounds is at least 1, --seconds at least 20, --size-mib a multiple of 4")
    args.device = args.device and args.device.replace("\\n", "\n") + "\n"
    args.parts, args.stores = args.only.split(","), args.store.split(",")
    for option, named, there in (("--only", args.parts, PARTS), ("--store", args.stores, STORES)):
        if unknown := [name for name in named if name not in there]:
            parser.error(f"{option}: no {unknown[0]!r}; there are: {', '.join(there)}")
    wanted = [name.strip() for name in args.way.split(";") if name.strip()]
    if lost := [name for name in wanted if not any(way.title.startswith(name) for way in WAYS)]:
        parser.error(f"--way: no row begins with {lost[0]!r}; there are: "
                     + "; ".join(way.title for way in WAYS))  # fmt: skip
    args.ways = [w for w in WAYS if not wanted or any(w.title.startswith(name) for name in wanted)]
    args.tidegate = Path(args.tidegate).resolve()
    if not os.access(args.tidegate, os.X_OK):
        parser.error(f"{args.tidegate} is not there; build it with: make build")
    return args


def without_missing(args):
    """The ways whose program is there, and the programs that are not."""
    programs = {way: getattr(way, "program", None) for way in args.ways}
    gone = sorted({p for p in programs.values() if p and not shutil.which(p)})
    args.ways = [way for way in args.ways if programs[way] not in gone]
    return gone


def run(args):
    if not shutil.which("fio"):
        raise BenchError("needs fio: make setup")
    if "disk" in args.stores:
        free, needed = shutil.disk_usage(args.directory).free, 3 * args.size + 64 * MIB
        if free < needed:
            raise BenchError(f"{args.directory} has {free // MIB} MiB free, {needed // MIB} are needed")
    gone = without_missing(args)
    versions = [first_line(str(args.tidegate), "--version"), first_line("fio", "--version")]
    versions += [first_line(way.program, "--version") for way in args.ways if hasattr(way, "program")]
    host = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "versions": versions,
        "not_there": gone,
    }
    if args.output == "table":
        print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
              f" load {host['load_at_start']:.1f} at the start")  # fmt: skip
        print("; ".join(versions))
        print(f"{SIZES}, depth {DEPTH}; medians of {args.rounds} rounds of {args.seconds} s")
        if gone:
            print(f"left out, for they are not there: {', '.join(gone)}")
    results = {"host": host, "rate": RATE, "seconds": args.seconds, "stores": {}}
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-precise-") as directory,
        tempfile.TemporaryDirectory(prefix="tidegate-precise-", dir=args.directory) as place,
    ):
        for name in args.stores:
            store = Array() if name == "array" else Disk(args, Path(place))
            found = results["stores"][name] = {}
            for part in args.parts:
                found[part] = measure(args, Path(directory), store, part)
                progress("")
                if args.output == "table" and found[part]:
                    show(args, store, part, found[part])
    if args.output == "json":
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(run_command("precise", run, parse_args))
