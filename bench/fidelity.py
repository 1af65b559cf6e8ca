#!/usr/bin/env python3
"""The simulator against the daemon: the same mixes of VMs, live and simulated.

Each file in experiments/fidelity is a scenario. Live, the daemon serves an
emulated device with the scenario's model, and fio is its VMs, over NBD.
Simulated, the scenario runs as it is, except for two times that are measured
first, on an idle device of the same model, with one request outstanding:

  round trip of the guest
      from the daemon's answer until the VM's next request has arrived: the
      time of a request (1 / IOPS) without what the daemon says it took and
      without the VM's think time (a process that sleeps wakes late). It
      becomes the VM's `delay`, drawn from a log-normal distribution as wide as
      that of fio's latencies. fio's processor time is a part of its own
      (`processor`): a guest with a deep queue spends that for one request
      after the other.
  lateness of the emulation
      from the time at which the model ends an I/O until the daemon's loop has
      noticed: the daemon's service time without the simulator's. It becomes
      the device's `transport`.

Both are measured for each operation, request size and think time, and never in
a mix itself: what is compared is a forecast. Processors are kept from halting
meanwhile, or a request on an idle device would take longer than in a mix.
Compared are IOPS and the 99th percentile of latencies from a request's arrival
to its answer, as the engine counts them on both sides, in the same buckets
(1/16 wide), over the same time after the same warm-up; medians over rounds
(live) and seeds (simulated). A mix passes if all of its VMs do. fio's own
figures would be wrong here: it takes all answers of a queue that it drains at
its end at once.

Mixes on hard disks take next to no processor time: --together of them run at a
time. The load of the machine is printed; processors that do something else
make round trips that no scenario has. On such a machine:
chrt -r 5 python3 bench/fidelity.py
"""

import argparse
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure import (
    KIB,
    Awake,
    BenchError,
    Fio,
    Running,
    Watcher,
    control_api,
    first_line,
    processor,
    progress,
    run_command,
    run_fio,
    serve,
)
from workload import SIZES, TIMES_US, Workload, figure, lines

ROOT = Path(__file__).resolve().parent.parent
MIXES = ROOT / "experiments" / "fidelity"
FAST = "ssd-sata-300gb"
FIO_START_SECONDS_MAX = 60
# Within so long all of fio's jobs have begun.
START_US = 20_000


class Goal:
    """How far a simulated figure may be from the live one, as parts of the live one."""

    def __init__(self, iops, p99):
        self.iops, self.p99 = iops, p99


HARD_DISK, FLASH = Goal(0.03, 0.15), Goal(0.08, 0.30)
# Mixes that must pass, of all of them.
PASS_PART = 0.9
# Measurements of each round trip.
TIMES_MEASURED = 3


class TimedWorkload(Workload):
    """A workload whose round trip is measured beforehand, by operation, block size and think time."""

    # The round trip of workloads with flushes or a rate would need measurements of its own.
    SAME = ("rw", "rwmixread", "iodepth", "numjobs")
    SIZED = ("bs", "size", "offset_increment")
    TIMES = ("thinktime",)
    RATES = ()

    def __init__(self, vm, table):
        super().__init__(vm, table)
        self.block = figure(table["bs"], SIZES)
        self.think_us = figure(table.get("thinktime", "0 us"), TIMES_US)

    def operations(self):
        """The kinds of requests it has, as fio's words for those alone."""
        rw = self.table["rw"]
        random = "rand" if rw.startswith("rand") else ""
        kind = rw.removeprefix("rand")
        kinds = {"read": ["read"], "write": ["write"], "rw": ["read", "write"]}
        return [random + one for one in kinds[kind]]

    def reads(self):
        """The part of its requests that are reads, 0 to 1."""
        kinds = self.operations()
        if len(kinds) == 2:
            return self.table.get("rwmixread", 50) / 100
        return float("read" in kinds[0])


class Mix:
    """One scenario, and what both ways of running it take of it."""

    def __init__(self, path):
        self.name, self.table = path.stem, tomllib.loads(path.read_text())
        (self.device,) = self.table["device"]
        self.model = self.device["model"]
        self.warm_up = figure(self.table["warm_up"], TIMES_US) // 1_000_000
        self.seconds = figure(self.table["duration"], TIMES_US) // 1_000_000 - self.warm_up
        self.workloads = []
        for vm in self.table["vm"]:
            (workload,) = vm["workload"]
            self.workloads.append(TimedWorkload(vm["name"], workload))
        self.is_hard_disk = self.model.startswith("hdd")
        self.goal = HARD_DISK if self.is_hard_disk else FLASH
        # A hard disk's own times are a hundred times the round trip: one flash model's will do.
        self.measured_on = FAST if self.is_hard_disk else self.model

    def served(self, args, directory):
        """The daemon with the mix's device and VMs."""
        device = 'kind = "emulated"\n' + lines({k: v for k, v in self.device.items() if k != "name"})
        vms = [(vm["name"], lines(vm["disk"][0]), lines(vm.get("objective", {})))
               for vm in self.table["vm"]]  # fmt: skip
        return serve(args, directory, device, vms)

    def scenario(self, seed, times):
        """The scenario with this seed and with what was measured beforehand."""
        frame = {k: v for k, v in self.table.items() if k not in ("device", "vm")} | {"seed": seed}
        late = {"complete": mean_of(times, self, lambda time: time.late)}
        text = lines(frame) + "[[device]]\n" + lines(self.device | {"transport": late})
        for vm, workload in zip(self.table["vm"], self.workloads):
            # fio's jobs begin one after the other; a guest that begins in the same instant as
            # another may stay in step with it for the whole run.
            begins = random.Random(f"{seed} {workload.vm}").uniform(0, START_US)
            table = vm | {"delay": times.delay(workload, self.measured_on),
                          "workload": [workload.table | {"startdelay": microseconds(begins)}]}
            text += "[[vm]]\n" + lines(table)
        return text


# ---------------------------------------------------------------------------- what is measured first


class Time:
    """What a request takes beside the model's time, in microseconds."""

    def __init__(self, late, round_trip, spread, processor):
        # The emulation's lateness; the guest's round trip without fio's processor time, and the
        # standard deviation of its logarithm; fio's processor time.
        self.late, self.round_trip, self.spread, self.processor = late, round_trip, spread, processor


class Times:
    """What each kind of request takes on each model, by (model, operation, size, think time)."""

    def __init__(self):
        self.found = {}

    def of(self, model, workload):
        """Of each kind of a workload's requests, with the kind's part of them."""
        parts = {"read": workload.reads(), "write": 1 - workload.reads()}
        for operation in workload.operations():
            key = (model, operation, workload.block, workload.think_us)
            yield parts[operation.removeprefix("rand")], self.found[key]

    def delay(self, workload, model):
        """The `delay` of a VM in a scenario."""
        kinds = list(self.of(model, workload))

        def mean(get):
            return sum(part * get(time) for part, time in kinds)

        spread, round_trip = mean(lambda time: time.spread), mean(lambda time: time.round_trip)
        return {
            "submit": log_normal(round_trip, spread),
            "processor": log_normal(mean(lambda time: time.processor), spread),
        }


def log_normal(mean, sigma):
    """A log-normal time of a scenario with this mean in microseconds, which is its median times
    exp(sigma^2 / 2)."""
    median = microseconds(mean / math.exp(sigma**2 / 2))
    return {"distribution": "lognormal", "median": median, "sigma": round(sigma, 3)}


def mean_of(times, mix, get):
    """A mean over all kinds of requests of a mix, as a time."""
    values = [part * get(time) for workload in mix.workloads
              for part, time in times.of(mix.measured_on, workload)]  # fmt: skip
    return microseconds(sum(values) / len(mix.workloads))


def microseconds(value):
    return f"{max(round(value * 1000), 0)} ns"


def measure_times(args, mixes, directory):
    """The median of three measurements of each, since one stall of the machine distorts a second."""
    times = Times()
    wanted = sorted({(mix.measured_on, operation, workload.block, workload.think_us) for mix in mixes
                     for workload in mix.workloads for operation in workload.operations()})  # fmt: skip
    for number, key in enumerate(wanted):
        progress(f"round trips: {number + 1}/{len(wanted)}")
        measured = [measure_time(args, directory, *key) for _ in range(TIMES_MEASURED)]
        times.found[key] = Time(*(
            statistics.median(getattr(time, figure_) for time in measured)
            for figure_ in ("late", "round_trip", "spread", "processor")
        ))  # fmt: skip
    return times


def measure_time(args, directory, model, operation, block, think_us):
    # So little is in memory after the warm-up: the first write to a page takes far longer than others.
    table = {"rw": operation, "bs": f"{block} B", "iodepth": 1, "size": "64 MiB"}
    if think_us:
        table["thinktime"] = f"{think_us} us"
    workload = TimedWorkload("probe", table)
    device = f'kind = "emulated"\nmodel = "{model}"\n'
    server = serve(args, directory, device, [("probe", 'size = "64 MiB"\n')])
    (directory / "probe.sock").unlink(missing_ok=True)
    with Running(server, directory / "probe.sock"):
        job = run_alone(workload, directory, seconds=1, warm_up=0.5)
        served = stats(directory)["probe"]
    frame = {"duration": "2 s", "warm_up": "500 ms"}
    simulated = simulate(args, directory, lines(frame) + f'[[device]]\nname = "disk"\nmodel = "{model}"\n'
                         '[[vm]]\nname = "probe"\n' + lines({"disk": [{"size": "64 MiB"}],
                                                           "workload": [table]}))  # fmt: skip
    model_us = simulated["probe"]["device_us"]
    daemon_us = served["latency"]["mean_ns"] / 1000
    outside = {quantile: max(of - model_us, 1) for quantile, of in job["quantiles_us"].items()}
    # Between the median and the 90th percentile of a normal distribution lie 1.2816 deviations.
    spread = math.log(max(outside[90] / outside[50], 1)) / 1.2816
    round_trip = 1e6 / job["iops"] - daemon_us - think_us - job["processor_us"]
    return Time(daemon_us - model_us, max(round_trip, 0), spread, job["processor_us"])


# ---------------------------------------------------------------------------- live


def stats(directory):
    """The daemon's counters, by VM."""
    return {vm["vm"]: vm for vm in control_api(directory, "/v1/stats?buckets=true")["vms"]}


def between(before, after):
    """What a VM had between two looks at its counters."""
    span = (after["taken_at_ns"] - before["taken_at_ns"]) / 1e9
    ios = after["latency"]["count"] - before["latency"]["count"]
    if ios == 0:
        raise BenchError(f"{after['vm']} had no answer in {span:.1f} s")
    earlier = dict(before["latency"]["buckets"])
    counts = [(upper, count - earlier.get(upper, 0)) for upper, count in after["latency"]["buckets"]]
    # As the engine has it: the upper end of the bucket that the quantile is in, or the maximum.
    rank, seen = math.ceil(0.99 * ios), 0
    for upper, count in counts:
        seen += count
        if seen >= rank:
            return {"iops": ios / span, "p99_us": min(upper, after["latency"]["max_ns"]) / 1000}
    raise BenchError(f"{after['vm']}: {ios} answers, but {seen} in its histogram")


def jobs_file(workloads, directory, seconds, warm_up, seed):
    """A file of fio's of all workloads at the same time."""
    head = ["[global]", "ioengine=nbd", "time_based", f"runtime={round(seconds * 1000)}ms",
            f"ramp_time={round(warm_up * 1000)}ms", f"randseed={seed}", "norandommap",
            "group_reporting", "lat_percentiles=1", "unified_rw_reporting=mixed",
            "percentile_list=50:90"]  # fmt: skip
    file = directory / "jobs.fio"
    file.write_text("\n".join([*head, *(workload.fio(directory, workload.vm, "new_group") for workload in workloads)]) + "\n")
    return str(file)


def run_alone(workload, directory, seconds, warm_up):
    """What fio says of one workload."""
    file = jobs_file([workload], directory, seconds, warm_up, seed=1)
    found = run_fio([file], seconds + warm_up + FIO_START_SECONDS_MAX)
    return believed(workload, found, seconds)


def believed(workload, jobs, seconds):
    """A workload's figures, once they add up."""
    own = [job for job in jobs if job["jobname"] == workload.vm]
    if len(own) != 1:
        raise BenchError(f"fio reports {len(own)} groups of {workload.vm} instead of one")
    job, all_ = own[0], own[0]["mixed"]
    span, ios = all_["runtime"] / 1000, all_["total_ios"]
    if job["error"] or ios == 0:
        raise BenchError(f"{workload.vm}: error {job['error']}, {ios} I/Os")
    if not 0.9 * seconds <= span <= 1.3 * seconds + 2:
        raise BenchError(f"{workload.vm} ran for {span} s instead of {seconds}")
    quantiles = all_["lat_ns"]["percentile"]
    return {
        "iops": ios / span,
        "quantiles_us": {q: quantiles[f"{q}.000000"] / 1000 for q in (50, 90)},
        "processor_us": (job["usr_cpu"] + job["sys_cpu"]) / 100 * span * 1e6 / ios,
    }


def live(args, directory, mix, seed):
    place = directory / f"{mix.name}-{seed}"
    place.mkdir()
    # fio runs for longer than it is looked at.
    file = jobs_file(mix.workloads, place, mix.warm_up + mix.seconds + FIO_START_SECONDS_MAX, 0, seed)
    socket_ = place / f"{mix.workloads[0].vm}.sock"
    with Watcher() as machine, Running(mix.served(args, place), socket_), Fio([file]) as fio:
        wait_for_all(place, fio)
        time.sleep(mix.warm_up)
        before = stats(place)
        time.sleep(mix.seconds)
        after = stats(place)
        if fio.process.poll() is not None:
            raise BenchError(f"{mix.name}: fio ended before its time")
    if errors := [name for name, vm in after.items() if any(op["errors"] for op in vm["operations"])]:
        raise BenchError(f"{mix.name}: errors of {', '.join(errors)}")
    had = {name: between(before[name], after[name]) for name in after}
    return {"vms": had, "stalls_s": machine.stalls}


def wait_for_all(directory, fio):
    """Waits until each VM has had an answer."""
    deadline = time.monotonic() + FIO_START_SECONDS_MAX
    while not all(vm["latency"]["count"] for vm in stats(directory).values()):
        if fio.process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"not all VMs ask for something: {fio.shown}")
        time.sleep(0.02)


# ---------------------------------------------------------------------------- simulated


def simulate(args, directory, scenario):
    with tempfile.NamedTemporaryFile("w", dir=directory, suffix=".toml") as file:
        file.write(scenario)
        file.flush()
        out = subprocess.run([args.tidegate, "sim", file.name, "-o", "json"], capture_output=True)
    if out.returncode:
        raise BenchError(f"the simulator says: {out.stderr.decode()}\n{scenario}")
    return {
        vm["name"]: {"iops": vm["iops"], "p99_us": vm["served"]["p99_ns"] / 1000,
                     "device_us": vm["waits"]["device_ns"] / 1000}
        for vm in json.loads(out.stdout)["vms"]
    }  # fmt: skip


# ---------------------------------------------------------------------------- compared


def compare(mix, live_runs, simulated_runs):
    rows = []
    for workload in mix.workloads:
        row = {"vm": workload.vm}
        for figure_, goal in (("iops", mix.goal.iops), ("p99_us", mix.goal.p99)):
            measured = [run["vms"][workload.vm][figure_] for run in live_runs]
            forecast = [run[workload.vm][figure_] for run in simulated_runs]
            here, there = statistics.median(measured), statistics.median(forecast)
            row[figure_] = {
                "live": here, "simulated": there, "difference": there / here - 1,
                "within": abs(there / here - 1) <= goal,
                "live_runs": measured, "simulated_runs": forecast,
            }  # fmt: skip
        rows.append(row)
    return {
        "mix": mix.name, "title": mix.table["title"], "model": mix.model, "vms": rows,
        "iops_within": all(row["iops"]["within"] for row in rows),
        "p99_within": all(row["p99_us"]["within"] for row in rows),
        "longest_stall_s": max([0, *(stall for run in live_runs for stall in run["stalls_s"])]),
        "scenario": None,
    }  # fmt: skip


def show(results):
    width = max(len(mix["mix"]) for mix in results["mixes"])
    vms = max(len(row["vm"]) for mix in results["mixes"] for row in mix["vms"])
    print(f"\n  {'':{width}} {'':{vms}}          IOPS                            p99, ms")
    print(f"  {'mix':{width}} {'VM':{vms}}      live  simulated  (diff.)        live  simulated  (diff.)")
    for mix in results["mixes"]:
        name = mix["mix"]
        for row in mix["vms"]:
            iops, p99 = row["iops"], row["p99_us"]
            print(f"  {name:{width}} {row['vm']:{vms}} {iops['live']:>9,.1f} {iops['simulated']:>10,.1f}"
                  f" {iops['difference']:>+7.1%}{' ' if iops['within'] else '*'}"
                  f" {p99['live'] / 1000:>11.3f} {p99['simulated'] / 1000:>10.3f}"
                  f" {p99['difference']:>+7.1%}{' ' if p99['within'] else '*'}")  # fmt: skip
            name = ""
    totals = results["totals"]
    print(f"  * beyond the goal: IOPS {HARD_DISK.iops:.0%} and p99 {HARD_DISK.p99:.0%} (hard disk),"
          f" {FLASH.iops:.0%} and {FLASH.p99:.0%} (flash).")  # fmt: skip
    print(f"  Of {totals['mixes']} mixes all VMs are within the goal: IOPS {totals['iops_within']},"
          f" p99 {totals['p99_within']}; the bar is {totals['bar']} of each.")  # fmt: skip


# ---------------------------------------------------------------------------- the command


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--only", default="",
                        help="only mixes whose names begin so, separated by commas (default: all)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="live runs of each mix (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=15,
                        help="simulated runs of each mix (default: %(default)s)")  # fmt: skip
    parser.add_argument("--together", type=int, default=10,
                        help="mixes on hard disks that run at a time (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table",
                        help="format of the results (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    if min(args.rounds, args.seeds, args.together) < 1:
        parser.error("--rounds, --seeds and --together are at least 1")
    args.tidegate = Path(args.tidegate).resolve()
    if not os.access(args.tidegate, os.X_OK):
        parser.error(f"{args.tidegate} is not there; build it with: make build")
    files = sorted(MIXES.glob("*.toml"))
    wanted = args.only.split(",")
    args.mixes = [Mix(file) for file in files if any(file.stem.startswith(w) for w in wanted)]
    if missing := [w for w in wanted if not any(file.stem.startswith(w) for file in files)]:
        parser.error(f"--only: no mix begins with {missing[0]!r}; there are: "
                     + ", ".join(file.stem for file in files))  # fmt: skip
    return args


def run_live(args, directory):
    """The live runs of each mix, by name: rounds take all mixes in turn."""
    runs = {mix.name: [] for mix in args.mixes}
    slow = [mix for mix in args.mixes if mix.is_hard_disk]
    fast = [[mix] for mix in args.mixes if not mix.is_hard_disk]
    groups = [slow[at : at + args.together] for at in range(0, len(slow), args.together)] + fast
    for round_ in range(args.rounds):
        for group in groups:
            progress(f"live: round {round_ + 1}/{args.rounds}, {', '.join(mix.name for mix in group)}")
            with ThreadPoolExecutor(len(group)) as pool:
                had = pool.map(lambda mix: live(args, directory, mix, round_ + 1), group)
                for mix, run_ in zip(group, had):
                    runs[mix.name].append(run_)
    return runs


def run_simulated(args, directory, times):
    """The simulated runs of each mix, by name."""
    runs = {}
    for mix in args.mixes:
        progress(f"simulated: {mix.name}")
        scenarios = [mix.scenario(seed, times) for seed in range(1, args.seeds + 1)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            runs[mix.name] = list(pool.map(lambda text: simulate(args, directory, text), scenarios))
    return runs


def run(args):
    if not shutil.which("fio"):
        raise BenchError("needs fio: make setup")
    host = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg(),
        "fio": first_line("fio", "--version"),
        "tidegate": first_line(str(args.tidegate), "--version"),
    }
    with tempfile.TemporaryDirectory(prefix="tidegate-fidelity-") as place:
        directory = Path(place)
        with Awake():
            times = measure_times(args, args.mixes, directory)
            live_runs = run_live(args, directory)
        simulated_runs = run_simulated(args, directory, times)
    progress("")
    host["load_at_end"] = os.getloadavg()
    mixes = []
    for mix in args.mixes:
        compared = compare(mix, live_runs[mix.name], simulated_runs[mix.name])
        mixes.append(compared | {"scenario": mix.scenario(1, times)})
    totals = {
        "mixes": len(mixes),
        "bar": math.ceil(PASS_PART * len(mixes)),
        "iops_within": sum(mix["iops_within"] for mix in mixes),
        "p99_within": sum(mix["p99_within"] for mix in mixes),
    }
    found = [{"model": model, "operation": operation, "block": block, "think_us": think_us,
              "late_us": time.late,
              "round_trip_us": time.round_trip, "spread": time.spread,
              "processor_us": time.processor}
             for (model, operation, block, think_us), time in sorted(times.found.items())]  # fmt: skip
    results = {"host": host, "times": found, "mixes": mixes, "totals": totals}
    if args.output == "json":
        print(json.dumps(results, indent=1))
        return
    print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']}, load"
          f" {host['load_at_start'][0]:.1f} at the start, {host['load_at_end'][0]:.1f} at the end,"
          f" {host['fio']}, {host['tidegate']}")  # fmt: skip
    print(f"medians of {args.rounds} live rounds and {args.seeds} seeds")
    show_times(found)
    show(results)


def show_times(found):
    print("\n  beside the model's time, us: the emulation's lateness, the guest's round trip and its"
          " processor's part")  # fmt: skip
    for time in found:
        print(f"  {time['model']:15} {time['operation']:9} {time['block'] // KIB:>5} KiB"
              f" {time['late_us']:>8.1f} {time['round_trip_us'] + time['processor_us']:>8.1f}"
              f" {time['processor_us']:>8.1f}   spread {time['spread']:.2f}"
              + (f", think time {time['think_us']} us" if time["think_us"] else ""))  # fmt: skip


if __name__ == "__main__":
    sys.exit(run_command("fidelity", run, parse_args))
