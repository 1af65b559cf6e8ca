#!/usr/bin/env python3
"""Sharing a disk fairly, live: fio's clients over NBD under one policy after the
other.

Three measurements, a table each:

  bottleneck  A (16 KiB, depth 1) beside B (128 KiB, depth 32) with equal
              weights on an emulated pipe of 100 MiB/s
              (examples/bottleneck.toml). The fair share of each is half of it.
  shares      VM1 beside two VMs with large requests and deep queues on an
              emulated flash disk and an emulated hard disk, as in vFair's
              figures 9 and 10. Each figure has the simulator's beside it, for
              the same load on the same model. There are a third of the rounds,
              and runs on the hard disk are four times as long.
  disk        A beside B on this machine's own disk, a file that is read past
              the page cache: under the kernel's schedulers, if the disk offers
              them and this program may change them (they are restored), and
              under Tidegate's policies. The throughput of both is compared
              with that of B alone, in pairs of the same round.

One server runs at a time. Each round takes all rows in turn, so that other
activity of the machine meets all of them alike; figures are medians over
rounds. Latencies are fio's.
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
    KernelScheduler,
    Running,
    first_line,
    prefill,
    processor,
    progress,
    run_command,
    run_fio,
    serve,
)

ROOT = Path(__file__).resolve().parent.parent
BOTTLENECK = ROOT / "examples" / "bottleneck.toml"
BOTTLENECK_MIB_S = 100


# ---------------------------------------------------------------------------- loads


class Load:
    """What one VM asks for, in fio's words; copies are numjobs."""

    def __init__(self, name, rw, block, depth, copies=1, reads=100):
        self.name, self.rw, self.block, self.depth = name, rw, block, depth
        self.copies, self.reads = copies, reads

    def fio(self, lines):
        own = [f"[{self.name}]", "new_group", f"rw={self.rw}", f"bs={self.block}",
               f"iodepth={self.depth}", f"numjobs={self.copies}", *lines]  # fmt: skip
        if self.rw == "randrw":
            own.append(f"rwmixread={self.reads}")
        return "\n".join(own)

    def job(self):
        """The same as a job of a scenario."""
        mix = f"rwmixread = {self.reads}\n" if self.rw == "randrw" else ""
        return (f'rw = "{self.rw}"\n{mix}bs = "{self.block // KIB} KiB"\n'
                f"iodepth = {self.depth}\nnumjobs = {self.copies}\n")  # fmt: skip


A = Load("A", "randread", 16 * KIB, 1)
B = Load("B", "randread", 128 * KIB, 32)

BULK = [
    Load("vm2", "randrw", 64 * KIB, 32, copies=8, reads=60),
    Load("vm3", "randrw", 128 * KIB, 32, copies=8, reads=60),
]
# vFair, section 5.1.1: figure 9 and table 2, figure 10 and table 3.
CASES = {
    "less backlogged": [Load("vm1", "randrw", 16 * KIB, 4, copies=4, reads=60), *BULK],
    "not backlogged": [Load("vm1", "read", 16 * KIB, 1), *BULK],
}
MODELS = {"flash": "ssd-sata-300gb", "hard disk": "hdd-7200-1tb"}
# A disk that does a hundred requests a second takes longer to say anything.
SLOWER = {"hard disk": 4}


# ---------------------------------------------------------------------------- Tidegate


class Policy:
    """A row: a policy, as TOML, and what else its device is told; without a policy a device has its
    default."""

    def __init__(self, title, policy=None, keys=""):
        self.title, self.keys = title, keys
        self.name = policy.strip('"') if policy else None
        self.device = (f"policy = {policy}\n" if policy else "") + keys


SHARED = 'adaptive_depth = true\nmax_io_shared = "16 KiB"\n'
DEFAULT = Policy("default (slo)")
PIPE = [
    DEFAULT,
    Policy("fifo", '"fifo"'),
    Policy("mclock", '"mclock"'),
    Policy("sfq", '"sfq"'),
    Policy("sfq + adaptive depth", '"sfq"', "adaptive_depth = true\n"),
    Policy("sfq + shared", '"sfq"', SHARED),
    Policy("mclock + shared", '"mclock"', SHARED),
    Policy("vfair + shared", '"vfair"', SHARED),
]
SHARES = [
    Policy("fifo", '"fifo"'),
    Policy("cfq", '"cfq"'),
    Policy("mclock-ps", '"mclock-ps"'),
    Policy("vfair", '"vfair"'),
    Policy("vfair + shared", '"vfair"', SHARED),
]
# No part is shorter than B's requests: only the place is kept.
PLACE = 'max_io_shared = "128 KiB"\n'
DISK = [
    DEFAULT,
    Policy("fifo", '"fifo"'),
    Policy("mclock", '"mclock"'),
    Policy("sfq", '"sfq"'),
    Policy("sfq + adaptive depth", '"sfq"', "adaptive_depth = true\n"),
    Policy("sfq + adaptive + place", '"sfq"', f"adaptive_depth = true\n{PLACE}"),
    Policy("sfq + depth 6 + place", '"sfq"', f"depth = 6\n{PLACE}"),
    Policy("mclock + depth 6 + place", '"mclock"', f"depth = 6\n{PLACE}"),
]


def known_policies(tidegate):
    out = subprocess.run([tidegate, "policy", "list", "-o", "json"], capture_output=True, check=True)
    return {policy["name"] for policy in json.loads(out.stdout)}


def adapted_depth(args, directory):
    """The depth that the server has found to be enough; None where it looks for none."""
    out = subprocess.run(
        [args.tidegate, "device", "show", "disk", "--socket", str(directory / "control.sock"),
         "-o", "json"], capture_output=True, check=True)  # fmt: skip
    return json.loads(out.stdout).get("adapted_depth")


# ---------------------------------------------------------------------------- fio


def run_loads(loads, common, directory, seconds, warm_up):
    """All loads at the same time; what each had, by name."""
    jobs = directory / "jobs.fio"
    head = ["[global]", "time_based", f"runtime={seconds}", f"ramp_time={warm_up}", "norandommap",
            "group_reporting", "percentile_list=50:99", *common]  # fmt: skip
    jobs.write_text("\n".join(head) + "\n" + "\n".join(text for _, text in loads) + "\n")
    found = run_fio([str(jobs)], seconds + warm_up + 60)
    return {load.name: believed(load, found, seconds) for load, _ in loads}


def believed(load, jobs, seconds):
    """A load's figures, once they add up."""
    own = [job for job in jobs if job["jobname"] == load.name]
    if len(own) != 1:
        raise BenchError(f"fio reports {len(own)} groups of {load.name} instead of one")
    job, sides = own[0], [own[0]["read"], own[0]["write"]]
    span = max(side["runtime"] for side in sides) / 1000
    ios, total = (sum(side[key] for side in sides) for key in ("total_ios", "io_bytes"))
    if job["error"] or ios == 0:
        raise BenchError(f"{load.name}: error {job['error']}, {ios} I/Os")
    outstanding = load.depth * load.copies
    if not 0.9 * seconds <= span <= 1.3 * seconds + 2:
        raise BenchError(f"{load.name} ran for {span} s instead of {seconds}")
    if abs(total - ios * load.block) > 2 * outstanding * load.block:
        raise BenchError(f"{load.name}: {total} bytes in {ios} I/Os of {load.block}")
    slowest = max(sides, key=lambda side: side["clat_ns"].get("percentile", {}).get("99.000000", 0))
    return {
        "iops": ios / span,
        "mib_s": total / MIB / span,
        "p50_us": slowest["clat_ns"]["percentile"]["50.000000"] / 1000,
        "p99_us": slowest["clat_ns"]["percentile"]["99.000000"] / 1000,
    }


def over_nbd(load, directory):
    return load, load.fio([f"uri=nbd+unix:///{load.name}?socket={directory / load.name}.sock"])


def live(args, directory, server, loads, alone=(), seconds=None):
    """A server of its own for these loads: what each had beside the others, what some had alone, and
    the depth it had found."""
    seconds = seconds or args.seconds
    sock = directory / f"{loads[0].name}.sock"
    for load in loads:
        (directory / f"{load.name}.sock").unlink(missing_ok=True)
    with Running(server, sock):
        common = ["ioengine=nbd", "size=100%"]
        single = {}
        for load in alone:
            had = run_loads([over_nbd(load, directory)], common, directory, seconds, args.warm_up)
            single[load.name] = had[load.name]
        clients = [over_nbd(load, directory) for load in loads]
        had = run_loads(clients, common, directory, seconds, args.warm_up)
        return had, single, adapted_depth(args, directory)


# ---------------------------------------------------------------------------- bottleneck


def measure_bottleneck(args, directory):
    rows = {row.title: [] for row in args.chosen(PIPE)}
    profile = directory / "pipe.profile.toml"
    progress("bottleneck: its profile")
    command = [args.tidegate, "profile", BOTTLENECK, "--quick", "--results", profile]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        raise BenchError(f"its profile cannot be had: {made.stderr.decode()}")
    for round_ in range(args.rounds):
        for row in args.chosen(PIPE):
            progress(f"bottleneck: round {round_ + 1}/{args.rounds}, {row.title}")
            device = (f'kind = "emulated"\nmodel = "{BOTTLENECK}"\nprofile = "{profile}"\n'
                      f"learn_cap = false\ndepth = 32\n{row.device}")  # fmt: skip
            vms = [(load.name, 'size = "256 MiB"\n') for load in (A, B)]
            server = serve(args, directory, device, vms)
            had, _, depth = live(args, directory, server, [A, B])
            rows[row.title].append({"A": had["A"], "B": had["B"], "depth": depth})
    return [pair_row(title, runs) for title, runs in rows.items()]


def pair_row(title, runs):
    median = statistics.median
    row = {"policy": title, "runs": runs}
    for vm in ("A", "B"):
        row[vm] = {key: median([run[vm][key] for run in runs]) for key in runs[0][vm]}
    row["total_mib_s"] = median([run["A"]["mib_s"] + run["B"]["mib_s"] for run in runs])
    depths = [run["depth"] for run in runs if run.get("depth")]
    row["depth"] = median(depths) if depths else None
    if "alone" in runs[0]:
        row["of_alone"] = median(
            [(run["A"]["mib_s"] + run["B"]["mib_s"]) / run["alone"]["mib_s"] for run in runs]
        )
        row["alone_mib_s"] = median([run["alone"]["mib_s"] for run in runs])
    return row


def show_bottleneck(rows):
    print(f"\nA (16 KiB, depth 1) beside B (128 KiB, depth 32), equal weights, a pipe of"
          f" {BOTTLENECK_MIB_S} MiB/s")  # fmt: skip
    width = max(len(row["policy"]) for row in rows)
    print(f"  {'':{width}}    A MiB/s   B MiB/s     total   A p99 ms   B p99 ms   depth found")
    for row in rows:
        print(f"  {row['policy']:{width}} {row['A']['mib_s']:>10.1f} {row['B']['mib_s']:>9.1f}"
              f" {row['total_mib_s']:>9.1f} {row['A']['p99_us'] / 1000:>10.2f}"
              f" {row['B']['p99_us'] / 1000:>10.1f} {show_depth(row):>13}")  # fmt: skip
    print("  The bar: A at least 45, both together at least 95.")


def show_depth(row):
    return "" if row["depth"] is None else f"{row['depth']:g}"


# ---------------------------------------------------------------------------- this machine's disk


def direct(load, disk, part):
    """A load on its part of the file, past the page cache."""
    size = disk.stat().st_size // 2
    return load, load.fio([f"filename={disk}", f"offset={part * size}", f"size={size}"])


def kernel_round(args, directory, disk):
    common = ["ioengine=io_uring", "direct=1"]
    loads = [direct(A, disk, 0), direct(B, disk, 1)]
    alone = run_loads(loads[1:], common, directory, args.seconds, args.warm_up)
    had = run_loads(loads, common, directory, args.seconds, args.warm_up)
    return {"A": had["A"], "B": had["B"], "alone": alone["B"]}


def measure_disk(args, directory):
    disk_dir = tempfile.TemporaryDirectory(prefix="tidegate-fair-", dir=args.directory)
    with disk_dir as place:
        disks = [Path(place) / f"{name}.raw" for name in ("A", "B")]
        both = Path(place) / "both.raw"
        progress(f"writing {args.size_mib} MiB")
        prefill(both, args.size)
        half = args.size // 2
        with open(both, "rb") as source:
            for disk in disks:
                with open(disk, "wb") as target:
                    for _ in range(half // (4 * MIB)):
                        target.write(source.read(4 * MIB))
        os.sync()
        with KernelScheduler(place) as scheduler:
            return disk_rounds(args, directory, both, disks, scheduler)


def disk_rounds(args, directory, both, disks, scheduler):
    kernel = [s for s in ("none", "mq-deadline", "kyber", "bfq") if s in scheduler.offered]
    if scheduler.knob is None:
        kernel = kernel and [scheduler.before]
    served = args.chosen(DISK)
    rows = {f"kernel: {name}": [] for name in kernel} | {row.title: [] for row in served}
    for round_ in range(args.rounds):
        for name in kernel:
            progress(f"disk: round {round_ + 1}/{args.rounds}, kernel: {name}")
            if scheduler.knob:
                scheduler.use(name)
            rows[f"kernel: {name}"].append(kernel_round(args, directory, both))
        if scheduler.knob and "none" in kernel:
            scheduler.use("none")
        for row in served:
            progress(f"disk: round {round_ + 1}/{args.rounds}, {row.title}")
            device = f'kind = "file"\n{row.device}'
            vms = [(load.name, f'path = "{disk}"\nread_only = true\nformat = "raw"\n')
                   for load, disk in zip((A, B), disks)]  # fmt: skip
            server = serve(args, directory, device, vms)
            had, alone, depth = live(args, directory, server, [A, B], alone=[B])
            rows[row.title].append({"A": had["A"], "B": had["B"], "alone": alone["B"],
                                    "depth": depth})  # fmt: skip
    return [pair_row(title, runs) for title, runs in rows.items() if runs]


def show_disk(rows, args):
    print(f"\nA (16 KiB, depth 1) beside B (128 KiB, depth 32) on this machine's disk, {args.directory}")
    width = max(len(row["policy"]) for row in rows)
    print(f"  {'':{width}}     A IOPS   A p99 ms     B IOPS   B p99 ms   total, of B alone"
          "   depth found")  # fmt: skip
    for row in rows:
        print(f"  {row['policy']:{width}} {row['A']['iops']:>10,.0f} {row['A']['p99_us'] / 1000:>10.2f}"
              f" {row['B']['iops']:>10,.0f} {row['B']['p99_us'] / 1000:>10.1f}"
              f" {row['of_alone']:>19.1%} {show_depth(row):>13}")  # fmt: skip
    print("  The bar: A at least 2,000 IOPS with p99 at most 1 ms, B's p99 at most 15 ms, the total at"
          " least 95 %.")  # fmt: skip


# ---------------------------------------------------------------------------- figures 9 and 10


def scenario(model, row, loads, seconds, warm_up):
    text = (f'duration = "{seconds + warm_up} s"\nwarm_up = "{warm_up} s"\n[[device]]\n'
            f'name = "disk"\nmodel = "{model}"\nprofile = "{model}"\nlearn_cap = false\n'
            f'depth = 32\nmerge_limit = "0 B"\nmax_requests_per_vm = 32\n{row.device}')  # fmt: skip
    for load in loads:
        text += f'[[vm]]\nname = "{load.name}"\ndisk = [{{ size = "256 MiB" }}]\n[[vm.workload]]\n{load.job()}'
    return text


def simulate(args, seconds, directory, model, row, loads):
    file = directory / "scenario.toml"
    file.write_text(scenario(model, row, loads, seconds, args.warm_up))
    out = subprocess.run([args.tidegate, "sim", str(file), "-o", "json"], capture_output=True)
    if out.returncode:
        raise BenchError(f"the simulator says: {out.stderr.decode()}")
    return {vm["name"]: vm["iops"] for vm in json.loads(out.stdout)["vms"]}


def measure_shares(args, directory):
    tables = []
    policies, rounds = args.chosen(SHARES), -(-args.rounds // 3)
    for kind, model in MODELS.items():
        for case, loads in CASES.items():
            seconds = args.seconds * SLOWER.get(kind, 1)
            alone = {}
            for load in loads:
                saturating = Load(load.name, load.rw, load.block, 32, reads=load.reads)
                alone |= simulate(args, seconds, directory, model, SHARES[0], [saturating])
            runs = {row.title: [] for row in policies}
            for round_ in range(rounds):
                for row in policies:
                    progress(f"shares, {kind}, {case}: round {round_ + 1}/{rounds}, {row.title}")
                    device = (f'kind = "emulated"\nmodel = "{model}"\nprofile = "{model}"\n'
                              f"learn_cap = false\ndepth = 32\n"
                              f'merge_limit = "0 B"\nmax_requests_per_vm = 32\n{row.device}')  # fmt: skip
                    vms = [(load.name, 'size = "256 MiB"\n') for load in loads]
                    server = serve(args, directory, device, vms)
                    had, _, _ = live(args, directory, server, loads, seconds=seconds)
                    runs[row.title].append({name: of["iops"] for name, of in had.items()})
            rows = []
            for row in policies:
                simulated = simulate(args, seconds, directory, model, row, loads)
                found = {name: statistics.median([run[name] for run in runs[row.title]])
                         for name in simulated}  # fmt: skip
                rows.append({"policy": row.title, "live_iops": found, "simulated_iops": simulated,
                             "runs": runs[row.title]})  # fmt: skip
            tables.append({"device": kind, "model": model, "case": case, "alone_iops": alone,
                           "rows": rows})  # fmt: skip
    return tables


def show_shares(tables):
    for table in tables:
        fair = {name: iops / len(table["alone_iops"]) for name, iops in table["alone_iops"].items()}
        print(f"\nThree VMs with equal weights on an emulated {table['device']} ({table['model']}),"
              f" {table['case']}")  # fmt: skip
        print("  fair are " + ", ".join(f"{name} {iops:,.0f}" for name, iops in fair.items()) + " IOPS:"
              " a third of what each has of a saturated disk alone")  # fmt: skip
        width = max(len(row["policy"]) for row in table["rows"])
        print(f"  {'':{width}}        VM1, of fair            VM2, of fair            VM3, of fair")
        print(f"  {'':{width}}  live  simulated  (diff.)" + "    live  simulated       " * 2)
        for row in table["rows"]:
            line = f"  {row['policy']:{width}}"
            for number, name in enumerate(fair):
                here, there = row["live_iops"][name], row["simulated_iops"][name]
                line += f" {here / fair[name]:>6.2f} {there / fair[name]:>10.2f}"
                line += f" {here / there - 1:>+7.0%} " if number == 0 and there else "      "
            print(line)


# ---------------------------------------------------------------------------- the command


PARTS = ("bottleneck", "shares", "disk")


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="measurements, separated by commas (default: all)")
    parser.add_argument("--policy", default="",
                        help="only rows whose titles begin so, separated by commas (default: all)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each run (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=5,
                        help="seconds before that, in which a depth is found (default: %(default)s)")  # fmt: skip
    parser.add_argument("--size-mib", type=int, default=2048,
                        help="size of each file on the disk (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", default="/var/tmp",
                        help="a directory on the disk to measure (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table",
                        help="format of the results (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    args.size = args.size_mib * MIB
    if min(args.rounds, args.seconds) < 1 or args.warm_up < 0 or args.size <= 0 or args.size % (8 * MIB):
        parser.error("--rounds and --seconds are at least 1, --size-mib is a multiple of 8")
    args.parts = args.only.split(",")
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"--only: no {unknown[0]!r}; there are: {', '.join(PARTS)}")
    args.tidegate = Path(args.tidegate).resolve()
    if not os.access(args.tidegate, os.X_OK):
        parser.error(f"{args.tidegate} is not there; build it with: make build")
    known = known_policies(args.tidegate)
    wanted = [name for name in args.policy.split(",") if name]
    every = [*PIPE, *SHARES, *DISK]
    if missing := [name for name in wanted if not any(row.title.startswith(name) for row in every)]:
        parser.error(f"--policy: no row begins with {missing[0]!r}; there are: "
                     + "; ".join(sorted({row.title for row in every})))  # fmt: skip
    args.skipped = sorted({row.name for row in every} - known - {None})

    def chosen(rows):
        there = [row for row in rows if row.name is None or row.name in known]
        return [row for row in there if not wanted or any(row.title.startswith(w) for w in wanted)]

    args.chosen = chosen
    return args


def run(args):
    if not shutil.which("fio"):
        raise BenchError("needs fio: make setup")
    if "disk" in args.parts:
        free = shutil.disk_usage(args.directory).free
        if free < 2 * args.size + 64 * MIB:
            raise BenchError(f"{args.directory} has {free // MIB} MiB free, twice"
                             f" {args.size_mib} are needed")  # fmt: skip

    host = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "fio": first_line("fio", "--version"),
        "tidegate": first_line(str(args.tidegate), "--version"),
        "policies_not_there": args.skipped,
    }
    if args.output == "table":
        print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
              f" load {host['load_at_start']:.1f} at the start, {host['fio']}, {host['tidegate']}")  # fmt: skip
        print(f"medians of {args.rounds} rounds of {args.seconds} s, after {args.warm_up} s each")
        if args.skipped:
            print(f"left out, for this binary does not have them: {', '.join(args.skipped)}")
    measures = {
        "bottleneck": (measure_bottleneck, show_bottleneck),
        "shares": (measure_shares, show_shares),
        "disk": (measure_disk, lambda rows: show_disk(rows, args)),
    }
    results = {"host": host}
    with tempfile.TemporaryDirectory(prefix="tidegate-fair-") as place:
        for part in args.parts:
            rows = {"bottleneck": PIPE, "shares": SHARES, "disk": DISK}[part]
            if not args.chosen(rows):
                print(f"fair: {part} has no row that was asked for", file=sys.stderr)
                continue
            measure, show = measures[part]
            results[part] = measure(args, Path(place))
            progress("")
            if args.output == "table":
                show(results[part])
    if args.output == "json":
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(run_command("fair", run, parse_args))
