#!/usr/bin/env python3
"""A deadline that is met with `tidegate agent` and missed without: three fio
processes on this machine's disk.

All three read a file at random and past the page cache, with the same depth
and request size. One has a job: so many bytes by a deadline. The others have
none and read on. Meanwhile the disk has a scheduler that honours I/O classes;
its own one is restored at the end, after an error or Ctrl-C as well.

The deadline is chosen before anything is run with the agent, by this rule: the
job is what its process reads in --seconds when it is alone; the deadline is
half-way between the times that this takes alone and beside the others, both by
the medians of --probes measurements that alternate.

Each round is a run without the agent and one with it, in an order that
alternates. The time of a run is wall-clock time from the start of the job's
fio to its end. The agent gets the process ids, the job and the disk, and
nothing else; fio's children do the I/O. Classes are those that `ionice` shows
for all of these processes, ten times a second.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from measure import (
    KIB,
    MIB,
    BenchError,
    Fio,
    KernelScheduler,
    Watcher,
    die_with_parent,
    first_line,
    prefill,
    processor,
    progress,
    run_command,
)

SCHEDULERS = ("bfq", "mq-deadline")
OTHERS = ("b", "c")
NAMES = ("job", *OTHERS)
START_SECONDS_MAX, AGENT_END_SECONDS_MAX = 20, 10
SAMPLE_SECONDS = 0.1
# More than a program is long: it has begun with its work.
STARTED_BYTES = 64 * MIB
# Longer than anything here takes; whoever starts these ends them.
ENDLESS_SECONDS = 86_400


# ---------------------------------------------------------------------------- processes


def family(pid):
    """A process and all that it started, as far as they run."""
    found = [pid]
    for process in found:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def bytes_moved(pid):
    total = 0
    for process in family(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/io").read_text().splitlines()
            books = dict(line.split(": ") for line in lines)
            total += int(books["read_bytes"]) + int(books["write_bytes"])
    return total


def classes(pids):
    """By name, the classes that threads of these processes have."""
    threads = {}
    for name, pid in pids.items():
        for process in family(pid):
            with contextlib.suppress(OSError):
                threads |= {thread: name for thread in os.listdir(f"/proc/{process}/task")}
    found = {name: set() for name in pids}
    said = subprocess.run(["ionice", "-p", *threads], capture_output=True, text=True, check=False)
    lines = said.stdout.splitlines()
    # A thread that has ended has no line: then nobody can say which is whose.
    if len(lines) != len(threads):
        return None
    for name, line in zip(threads.values(), lines):
        found[name].add(line)
    return {name: " and ".join(sorted(lines)) for name, lines in found.items()}


class ClassWatcher:
    """Which classes processes have during a `with` block: (seconds, by name), at the begin and at each change."""

    def __init__(self, pids):
        self.pids, self.seen, self.ended = pids, [], threading.Event()

    def __enter__(self):
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        while not self.ended.is_set():
            at, found = time.monotonic() - self.began, classes(self.pids)
            if found and (not self.seen or self.seen[-1][1] != found):
                self.seen.append((at, found))
            self.ended.wait(SAMPLE_SECONDS)

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


class Agent:
    """`tidegate agent`, which ends by itself once the job has ended."""

    def __init__(self, args, pids, work, deadline):
        vms = [f"--vm={name}={pid}" for name, pid in pids.items()]
        job = f"--job=job={work // MIB} MiB in {deadline * 1000:.0f} ms"
        self.process = subprocess.Popen(
            [str(args.tidegate), "agent", *vms, job, "--disk", args.directory, "-o", "json", *args.agent],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent, start_new_session=True,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            # It puts everything back.
            self.process.terminate()
            try:
                self.process.communicate(timeout=AGENT_END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def events(self):
        """What it said, once it has ended: [{at_s, kind, vm, text}]; and whether it says that all was in time."""
        try:
            out, err = self.process.communicate(timeout=AGENT_END_SECONDS_MAX)
        except subprocess.TimeoutExpired as timeout:
            raise BenchError("the agent did not end with its job") from timeout
        if self.process.returncode and "not in time" not in err:
            raise BenchError(f"the agent failed ({self.process.returncode}): {err}")
        lines = [json.loads(line) for line in out.splitlines()]
        events = [line["event"] | {"at_s": line["at_s"]} for line in lines if "event" in line]
        return events, self.process.returncode == 0


# ---------------------------------------------------------------------------- fio


def fio(args, file, name, *more):
    part = args.size // len(NAMES) // MIB * MIB
    return Fio([f"--name={name}", f"--filename={file}", f"--offset={NAMES.index(name) * part}",
                f"--size={part}", f"--rw={args.rw}", f"--bs={args.block_kib * KIB}",
                f"--iodepth={args.depth}", "--ioengine=libaio", "--direct=1", "--norandommap",
                "--randrepeat=0", *more])  # fmt: skip


def timed(seconds):
    return "--time_based", f"--runtime={seconds}"


@contextlib.contextmanager
def others(args, file):
    """The processes without a job, once they read: their fio by name."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name in OTHERS:
            running[name] = stack.enter_context(fio(args, file, name, *timed(ENDLESS_SECONDS)))
        patience = time.monotonic() + START_SECONDS_MAX
        while any(bytes_moved(of.process.pid) < STARTED_BYTES for of in running.values()):
            if ended := [of for of in running.values() if of.process.poll() is not None]:
                ended[0].jobs(1)
            if time.monotonic() > patience or ended:
                raise BenchError("the processes without a job move nothing")
            time.sleep(0.01)
        yield running


def rate(args, file):
    """Bytes a second of the job's process for a while."""
    with fio(args, file, "job", *timed(args.probe_seconds)) as running:
        (job,) = running.jobs(args.probe_seconds + 60)
    sides = [job["read"], job["write"]]
    span = max(side["runtime"] for side in sides) / 1000
    if job["error"] or span < 0.9 * args.probe_seconds:
        raise BenchError(f"the job's process ran for {span} s, error {job['error']}")
    return sum(side["io_bytes"] for side in sides) / span


def choose(args, file):
    """The job and its deadline, by the rule."""
    alone, shared = [], []
    for probe in range(args.probes):
        progress(f"probe {probe + 1}/{args.probes}")
        alone.append(rate(args, file))
        with others(args, file):
            shared.append(rate(args, file))
    one, three = statistics.median(alone), statistics.median(shared)
    work = max(int(one * args.seconds) // MIB, 1) * MIB
    chosen = {"alone_b_s": one, "shared_b_s": three, "bytes": work, "alone_s": work / one,
              "shared_s": work / three, "alone": alone, "shared": shared}  # fmt: skip
    chosen["deadline_s"] = round((chosen["alone_s"] + chosen["shared_s"]) / 2, 1)
    if chosen["shared_s"] < 1.2 * chosen["alone_s"]:
        raise BenchError(f"the job's process has {three / 1e6:,.0f} MB/s among three and {one / 1e6:,.0f} alone:"
                         " no deadline between the two says anything")  # fmt: skip
    return chosen


# ---------------------------------------------------------------------------- runs


def run_once(args, file, chosen, with_agent):
    """One run of the job, with or without the agent."""
    patience = 5 * chosen["shared_s"] + 60
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(Watcher())
        running = stack.enter_context(others(args, file))
        pids = {name: of.process.pid for name, of in running.items()}
        own = classes(pids)
        before, began = {name: bytes_moved(pid) for name, pid in pids.items()}, time.monotonic()
        job = stack.enter_context(fio(args, file, "job", f"--io_size={chosen['bytes']}"))
        pids = {"job": job.process.pid} | pids
        agent = None
        if with_agent:
            agent = stack.enter_context(Agent(args, pids, chosen["bytes"], chosen["deadline_s"]))
        with ClassWatcher(pids) as seen:
            (told,) = job.jobs(patience)
        took = time.monotonic() - began
        moved = {name: bytes_moved(pids[name]) - before[name] for name in OTHERS}
        found = {
            "took_s": took,
            "met": took <= chosen["deadline_s"],
            "others_b_s": sum(moved.values()) / took,
            "total_b_s": (sum(moved.values()) + chosen["bytes"]) / took,
            "classes": [{"at_s": at, "classes": of} for at, of in seen.seen],
        }
        if agent:
            found["events"], found["agent_says_met"] = agent.events()
        found["put_back"] = classes({name: pids[name] for name in OTHERS}) == own
        if (read := sum(told[side]["io_bytes"] for side in ("read", "write"))) != chosen["bytes"]:
            raise BenchError(f"the job's process moved {read} bytes instead of {chosen['bytes']}")
        if any(of.process.poll() is not None for of in running.values()):
            raise BenchError("a process without a job ended")
    return found | {"machine_stalls_s": watcher.stalls}


def rounds(args, file, chosen):
    found = []
    for round_ in range(args.rounds):
        pair = {}
        for with_agent in ((False, True), (True, False))[round_ % 2]:
            how = "with" if with_agent else "without"
            progress(f"round {round_ + 1}/{args.rounds}, {how} the agent")
            pair[how] = run_once(args, file, chosen, with_agent)
        found.append(pair)
        progress("")
    return found


# ---------------------------------------------------------------------------- showing


def course(run):
    """What was seen of classes, in a line."""
    seen, parts = run["classes"], []
    for before, after in zip(seen, seen[1:]):
        for name, now in after["classes"].items():
            if now and now != before["classes"].get(name):
                parts.append(f"{after['at_s']:.1f} s {name} {now.split(':')[0]}")
    return ", ".join(parts) or "nobody's changed"


def show_rule(chosen, args):
    print(f"The job: {chosen['bytes'] / 1e6:,.0f} MB, {args.seconds:g} s of what its process has alone"
          f" ({chosen['alone_b_s'] / 1e6:,.0f} MB/s)")  # fmt: skip
    print(f"Its deadline: {chosen['deadline_s']:.1f} s, half-way between {chosen['alone_s']:.1f} s alone and"
          f" {chosen['shared_s']:.1f} s among three ({chosen['shared_b_s'] / 1e6:,.0f} MB/s); medians of"
          f" {args.probes} probes of {args.probe_seconds} s")  # fmt: skip


def show(found, chosen):
    width = 24
    print(f"\n  round  {'without the agent':{width}}{'with the agent':{width}}classes as seen with it")
    for number, pair in enumerate(found, 1):
        cells = ""
        for how in ("without", "with"):
            run = pair[how]
            mark = "*" if run["machine_stalls_s"] else ""
            verdict = "met" if run["met"] else "missed"
            cells += f"{run['took_s']:6.1f} s  {verdict + mark:{width - 10}}"
        print(f"  {number:5}  {cells}{course(pair['with'])}")
    median = {how: statistics.median(pair[how]["took_s"] for pair in found) for how in ("without", "with")}
    print("  median " + "".join(f"{median[how]:6.1f} s{'':{width - 8}}" for how in ("without", "with")))
    for title, key in (("the others, MB/s", "others_b_s"), ("all three, MB/s", "total_b_s")):
        values = {how: statistics.median(pair[how][key] for pair in found) / 1e6 for how in median}
        print(f"  {title}: {values['without']:,.0f} without, {values['with']:,.0f} with the agent")
    met = {how: sum(pair[how]["met"] for pair in found) for how in median}
    count = len(found)
    print(f"  The deadline of {chosen['deadline_s']:.1f} s: met {met['without']} of {count} times without, "
          f"{met['with']} of {count} with the agent.")  # fmt: skip
    back = sum(pair["with"]["put_back"] for pair in found)
    agrees = sum(pair["with"]["agent_says_met"] == pair["with"]["met"] for pair in found)
    print(f"  The others' classes were put back {back} of {count} times; the agent's own verdict is the clock's"
          f" {agrees} of {count} times.")  # fmt: skip
    if any(run["machine_stalls_s"] for pair in found for run in pair.values()):
        print("  * The machine itself stood still meanwhile.")


# ---------------------------------------------------------------------------- the command


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--scheduler", choices=SCHEDULERS, default="bfq",
                        help="I/O scheduler of the disk meanwhile (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="runs without and with the agent (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15,
                        help="time that the job takes alone (default: %(default)g)")  # fmt: skip
    parser.add_argument("--probes", type=int, default=3,
                        help="measurements of each of the two rates (default: %(default)s)")  # fmt: skip
    parser.add_argument("--probe-seconds", type=int, default=4,
                        help="length of each measurement (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rw", default="randread",
                        choices=("randread", "read", "randwrite", "write"),
                        help="I/O of all three (default: %(default)s)")  # fmt: skip
    parser.add_argument("--block-kib", type=int, default=512, help="size of a request (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=16, help="queue depth of each process (default: %(default)s)")
    parser.add_argument("--size-mib", type=int, default=1536, help="size of the file (default: %(default)s)")
    parser.add_argument("--directory", default="/var/tmp",
                        help="a directory on the disk to measure (default: %(default)s)")  # fmt: skip
    parser.add_argument("--agent", default="", help="more options of the agent:"
                        " --agent='--interval 1s'")  # fmt: skip
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table",
                        help="format of the results (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    args.size, args.agent = args.size_mib * MIB, args.agent.split()
    if min(args.rounds, args.probes, args.probe_seconds, args.block_kib, args.depth) < 1:
        parser.error("--rounds, --probes, --probe-seconds, --block-kib and --depth are at least 1")
    if args.seconds <= 0 or args.size < 3 * 4 * MIB or args.size % (4 * MIB):
        parser.error("--seconds is above 0, --size-mib at least 12 and a multiple of 4")
    args.tidegate = Path(args.tidegate).resolve()
    if not os.access(args.tidegate, os.X_OK):
        parser.error(f"{args.tidegate} is not there; build it with: make build")
    return args


def why_not(args, scheduler):
    """Why this cannot be shown here; None: it can."""
    if scheduler.before is None:
        return f"{args.directory} lies on no disk that has a scheduler; --directory is another one"
    if scheduler.knob is None or os.geteuid() != 0:
        return f"the scheduler of {scheduler.disk} is for root to change"
    try:
        # A scheduler that is a module is offered once somebody asked for it.
        scheduler.use(args.scheduler)
    except (OSError, BenchError):
        return f"{scheduler.disk} offers {', '.join(scheduler.offered)}, and not {args.scheduler}"
    return None


def settings(scheduler):
    """What may matter of the scheduler's own settings."""
    found = {}
    for name in ("low_latency", "slice_idle", "prio_aging_expire"):
        with contextlib.suppress(OSError):
            found[name] = (scheduler.knob.parent / "iosched" / name).read_text().strip()
    return found


def measure(args, scheduler):
    host = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "versions": [first_line(str(args.tidegate), "--version"), first_line("fio", "--version")],
        "disk": scheduler.disk,
        "scheduler": args.scheduler,
        "settings": settings(scheduler),
    }
    table = args.output == "table"
    if table:
        print(f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']},"
              f" load {host['load_at_start']:.1f} at the start; {'; '.join(host['versions'])}")  # fmt: skip
        said = "".join(f", {name} {value}" for name, value in host["settings"].items())
        print(f"{scheduler.disk} under {args.scheduler}{said} instead of {scheduler.before}; three processes,"
              f" {args.rw}, {args.block_kib} KiB, depth {args.depth} each, direct I/O")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tidegate-deadline-", dir=args.directory) as place:
        file = Path(place) / "file.raw"
        progress(f"writing {args.size_mib} MiB")
        prefill(file, args.size)
        os.sync()
        chosen = choose(args, file)
        progress("")
        if table:
            show_rule(chosen, args)
            sys.stdout.flush()
        found = rounds(args, file, chosen)
    if table:
        show(found, chosen)
    return {"host": host, "chosen": chosen, "rounds": found}


def run(args):
    if gone := [program for program in ("fio", "ionice") if not shutil.which(program)]:
        raise BenchError(f"needs {' and '.join(gone)}: make setup")
    free = shutil.disk_usage(args.directory).free
    if free < args.size + 64 * MIB:
        raise BenchError(f"{args.directory} has {free // MIB} MiB free, {args.size_mib} are needed")
    with KernelScheduler(args.directory) as scheduler:
        if why := why_not(args, scheduler):
            print(f"deadline: skipped: {why}", file=sys.stderr)
            return
        results = measure(args, scheduler)
    after = KernelScheduler(args.directory).before
    if after != scheduler.before:
        raise BenchError(f"{scheduler.disk} has the scheduler {after}, it had {scheduler.before}")
    if args.output == "table":
        print(f"  {scheduler.disk} has its scheduler back: {after}.")
    else:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(run_command("deadline", run, parse_args))
