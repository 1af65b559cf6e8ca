"""Who works on a daemon that `scripts/soak` soaks: those who verify, are killed, change and ask."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from soak_nbd import SECTOR, Client, Gone, Ledger, WrongBytes, audit
from soak_world import MIB, VMS, Backing, Daemon, SoakError, die_with_parent

PREY_PROGRAM = Path(__file__).resolve().parent / "soak_nbd.py"
ROUND_SECONDS_MAX = 900
# What rests after each load: the clients' descriptors close once their last I/O has ended.
REST_SECONDS_MAX = 60
# Descriptors that a daemon opens once, the first time something is asked of it.
DESCRIPTORS_SPARE = len(VMS) + 2

LEDGER_TAG = 1
LEDGER_SECTORS = 32 * MIB // SECTOR
# Where clients are killed: export, tag, first sector, sectors. In alpha, fio has the first half.
PREY_REGIONS = (
    ("alpha", 2, 128 * MIB // SECTOR, 128 * MIB // SECTOR),
    ("prey", 3, 0, 64 * MIB // SECTOR),
    ("backup", 4, 0, 64 * MIB // SECTOR),
)
# Where fio verifies, and where fio is killed: export, first MiB, MiB.
FIO_REGIONS = (("alpha", 0, 128), ("beta", 0, 128))
DOOMED_REGIONS = (("beta", 128, 64), ("doomed", 0, 64))

BLOCK_SIZES = (
    ("--bssplit=512/20:4k/30:16k/20:64k/20:256k/8:1m/2", 57),
    ("--bsrange=512-64k", 32),
    ("--bsrange=512-1m", 512),
    ("--bs=512", 0.5),
    ("--bs=4k", 4),
    ("--bs=64k", 64),
    ("--bs=1m", 1024),
)
VERIFY = ("crc32c", "crc32c", "md5", "sha1", "xxhash", "pattern")
DEPTHS = (1, 2, 4, 8, 16, 32, 64)


class Arena:
    """One backing: its daemon, and everybody who works on it, a thread each."""

    def __init__(self, kind, args, directory):
        self.kind, self.args, self.directory = kind, args, directory
        self.backing = Backing(kind, args.model, directory)
        self.daemon = Daemon(args.tidegate, self.backing, directory)
        self.failure = None
        self.over = threading.Event()
        self.lock = threading.Condition()
        self.held, self.parked = set(), set()
        self.counts = dict.fromkeys(
            ("fio_bytes", "fio_rounds", "audited_bytes", "killed", "fio_killed", "swaps", "changes",
             "refused", "scrapes", "restarts", "crashes", "lives"), 0)  # fmt: skip
        self.memory = []
        self.policies_used = set()
        self.ledger = Ledger(self.rng("ledger"), "ledger", LEDGER_TAG, LEDGER_SECTORS)
        # Whether the daemon is about to end in order (true), killed (false), or not at all.
        self.ending = None
        self.threads = []

    def rng(self, role):
        return random.Random(f"{self.args.seed} {self.kind} {role}")

    def fail(self, why):
        with self.lock:
            # What goes wrong once it is over is that it is over.
            if not self.over.is_set():
                self.failure = why
            self.over.set()

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    # ------------------------------------------------------------ who works when

    def checkpoint(self, role):
        """Between two pieces of work: waits here while the role is held; false at the end."""
        with self.lock:
            while role in self.held and not self.over.is_set():
                if role not in self.parked:
                    self.parked.add(role)
                    self.lock.notify_all()
                self.lock.wait(1)
            self.parked.discard(role)
        return not self.over.is_set()

    def hold(self, roles):
        """Waits until these roles rest."""
        deadline = time.monotonic() + ROUND_SECONDS_MAX
        with self.lock:
            self.held |= roles
            while not roles <= self.parked and not self.over.is_set():
                if time.monotonic() > deadline:
                    raise SoakError(f"{roles - self.parked} did not come to rest")
                self.lock.wait(1)

    def release(self, roles):
        with self.lock:
            self.held -= roles
            self.parked -= roles
            self.lock.notify_all()

    def start(self):
        self.backing.prepare()
        self.daemon.write_config()
        self.daemon.start()
        roles = {"ledger": self.keep_ledger, "prey": self.kill_prey, "doomed": self.kill_fio,
                 "policies": self.swap_policies, "objectives": self.change_objectives,
                 "metrics": self.scrape}  # fmt: skip
        for region in FIO_REGIONS:
            roles[f"fio {region[0]}"] = lambda role, region=region: self.verify(role, region)
        self.roles = set(roles)
        with self.lock:
            # Everybody waits until the daemon was looked at as it is before the first client.
            self.held |= self.roles
        for role, work in roles.items():
            self.spawn(role, work)
        self.spawn("lives", lambda role: self.live())

    def spawn(self, role, work):
        def guarded():
            try:
                work(role)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the soak
                kind = "" if isinstance(error, (SoakError, WrongBytes)) else type(error).__name__
                self.fail(f"{self.kind}, {role}: {kind} {error}".replace(":  ", ": "))

        thread = threading.Thread(target=guarded, name=f"{self.kind} {role}", daemon=True)
        thread.start()
        self.threads.append(thread)

    # ------------------------------------------------------------ lives of the daemon

    def live(self):
        """Lets everybody work, looks at memory at rest, restarts; until the time is over."""
        rng = self.rng("lives")
        ends_at = time.monotonic() + self.args.minutes * 60
        while True:
            fresh = self.at_rest(0)
            self.count("lives")
            self.release(self.roles)
            # Used up to what it may use: buffers, tables, the allocator's own.
            warm_for = min(self.args.warm_up, (ends_at - time.monotonic()) / 4)
            self.sleep(warm_for)
            self.rest()
            warm = self.at_rest(fresh["descriptors"])
            self.release(self.roles)
            left = ends_at - time.monotonic()
            last = not self.backing.keeps_bytes() or left < 1.5 * self.args.restart_minutes * 60
            self.sleep(left if last else self.args.restart_minutes * 60 - warm_for)
            self.rest()
            end = self.at_rest(fresh["descriptors"])
            self.judge(fresh, warm, end)
            if last or self.over.is_set():
                break
            # The ledger goes on working while the daemon ends.
            self.ending = self.counts["crashes"] > self.counts["restarts"]
            self.release({"ledger"})
            self.sleep(rng.uniform(1, 4))
            self.daemon.end(self.ending)
            self.count("restarts" if self.ending else "crashes")
            self.hold({"ledger"})
            self.ending = None
            self.daemon.start()
        if self.failure is None:
            self.final_audit()
            self.daemon.end(True)
        self.over.set()

    def rest(self):
        """Everybody stops; the others go on until the last round of fio is through."""
        self.hold({role for role in self.roles if role.startswith("fio")})
        self.hold(self.roles)

    def sleep(self, seconds):
        if self.over.wait(max(0, seconds)) and self.failure is None:
            raise SoakError("stopped")

    def at_rest(self, descriptors):
        """Memory and descriptors once nobody is connected any more."""
        deadline = time.monotonic() + REST_SECONDS_MAX
        while not self.over.is_set():
            _, vms = self.ask("GET", "/v1/vms")
            busy = [vm["name"] for vm in vms if vm["clients"]]
            found = self.daemon.descriptors()
            if not busy and (descriptors == 0 or found <= descriptors + DESCRIPTORS_SPARE):
                break
            if time.monotonic() > deadline:
                raise SoakError(f"nobody is connected, and the daemon has clients of {busy} and"
                                f" {found} descriptors, {descriptors} at the start")  # fmt: skip
            time.sleep(0.1)
        # Warm buffers are given back within some seconds.
        time.sleep(3)
        return {"resident": self.daemon.resident(), "descriptors": self.daemon.descriptors()}

    def judge(self, fresh, warm, end):
        grown = end["resident"] - warm["resident"]
        self.memory.append({"fresh": fresh, "warm": warm, "end": end})
        allowed = self.args.growth_mib
        if self.kind == "memory":
            # The disks' own bytes: each page counts once it was written.
            allowed += sum(mib for _, mib, _ in VMS)
        if grown > allowed * MIB:
            raise SoakError(f"memory grew by {grown / MIB:.1f} MiB since the daemon was warm, from"
                            f" {warm['resident'] / MIB:.1f} to {end['resident'] / MIB:.1f} MiB;"
                            f" allowed are {allowed:g}")  # fmt: skip

    def final_audit(self):
        for region in PREY_REGIONS:
            self.audit_prey(region, region[3])
        client = Client(self.daemon.nbd, "ledger")
        self.ledger.unflushed.clear()
        self.ledger.reconcile(client)
        client.disconnect()

    # ------------------------------------------------------------ who verifies

    def verify(self, role, region):
        rng = self.rng(role)
        while self.checkpoint(role):
            self.fio_round(rng, *region)

    def fio_round(self, rng, export, first_mib, mib):
        sizes, mean_kib = rng.choice(BLOCK_SIZES)
        depth = rng.choice(DEPTHS)
        rw = rng.choice(("randwrite", "randwrite", "randrw", "write"))
        clients = rng.choice((1, 1, 2))
        requests = self.args.rate * 8 // clients
        part = mib // clients
        # A multiple of every block size.
        unit = 1024 if mean_kib > 16 else 64
        size = min(part * 1024, -(-int(requests * mean_kib) // unit) * unit)
        burst = 2 * depth
        args = [f"--rw={rw}", sizes, f"--iodepth={depth}", f"--offset={first_mib + rng.randint(0, part - -(-size // 1024))}m",
                f"--size={size}k", f"--numjobs={clients}", f"--offset_increment={part}m",
                f"--verify={rng.choice(VERIFY)}", "--verify_pattern=%o", "--verify_fatal=1",
                f"--randseed={rng.getrandbits(31)}",
                # Full queues, then quiet: as many requests a second as are asked for.
                f"--thinktime={burst * clients * 1_000_000 // self.args.rate}",
                f"--thinktime_blocks={burst}"]  # fmt: skip
        if rng.random() < 0.7:
            args.append(f"--verify_backlog={rng.choice((1, 16, 128))}")
        if rng.random() < 0.3:
            args.append(f"--fsync={rng.choice((1, 8, 64))}")
        result = self.run_fio(export, args)
        read, wrote = (sum(job[d]["io_bytes"] for job in result["jobs"]) for d in ("read", "write"))
        if read < wrote or wrote == 0 or (rw != "randrw" and read > wrote):
            raise SoakError(f"fio wrote {wrote} bytes and read {read}: {' '.join(args)}")
        self.count("fio_bytes", min(read, wrote))
        self.count("fio_rounds")

    def fio(self, export, args):
        return subprocess.Popen(
            ["fio", "--name=soak", "--ioengine=nbd", f"--uri={self.daemon.uri(export)}", "--thread=1",
             "--group_reporting=1", "--output-format=json", *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.directory, preexec_fn=die_with_parent, start_new_session=True)  # fmt: skip

    def run_fio(self, export, args):
        process = self.fio(export, args)
        deadline = time.monotonic() + ROUND_SECONDS_MAX
        while True:
            try:
                out, err = process.communicate(timeout=2)
                break
            except subprocess.TimeoutExpired:
                if self.over.is_set() or time.monotonic() > deadline:
                    process.kill()
                    process.wait()
                    why = "stopped" if self.over.is_set() else f"no end of fio {' '.join(args)}"
                    raise SoakError(why) from None
        if process.returncode or "{" not in out:
            raise SoakError(f"fio on {export} failed ({process.returncode}): {' '.join(args)}\n"
                            f"{err.strip()[-1500:]}\n{out[: out.find('{')][-1500:]}")  # fmt: skip
        return json.loads(out[out.index("{") :])

    def keep_ledger(self, role):
        rng, client, restarted = self.rng("ledger bursts"), None, False
        while True:
            try:
                if client is not None and role in self.held:
                    client = client.disconnect()
                if not self.checkpoint(role):
                    return
                if client is None:
                    client = Client(self.daemon.nbd, "ledger")
                if restarted:
                    self.ledger.reconcile(client)
                    restarted = False
                depth = rng.choice(DEPTHS)
                self.ledger.burst(client, depth)
                if rng.random() < 0.3:
                    self.ledger.flush(client)
                # While the daemon is about to end, there is always something in flight.
                if self.ending is None:
                    self.over.wait(2 * depth / self.args.rate)
            except Gone as gone:
                if self.ending is None:
                    raise SoakError(f"the daemon cut the ledger off: {gone}") from None
                client, restarted = client and client.close(), True
                self.ledger.disconnected(self.ending)
                with self.lock:
                    # Until the next life.
                    self.held.add(role)

    # ------------------------------------------------------------ who is killed

    def kill_prey(self, role):
        rng = self.rng(role)
        while self.checkpoint(role):
            region = rng.choice(PREY_REGIONS)
            crowd = [self.start_prey(rng, region) for _ in range(rng.choice((1, 1, 2, 4)))]
            self.over.wait(rng.choice((0, 0.002, 0.01, 0.1)))
            for process in crowd:
                process.kill()
                out, _ = process.communicate()
                if process.returncode != -signal.SIGKILL:
                    raise SoakError(f"a client of {region[0]} ended by itself ({process.returncode}): {out}")
                self.count("killed")
            self.audit_prey(region, 2 * MIB // SECTOR, rng)
            self.over.wait(rng.uniform(0, 2 * self.args.kill_seconds))

    def start_prey(self, rng, region):
        words = [self.daemon.nbd, *region, rng.getrandbits(60)]
        process = subprocess.Popen(
            [sys.executable, "-S", "-B", str(PREY_PROGRAM), *map(str, words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent, start_new_session=True)  # fmt: skip
        word = process.stdout.readline()
        if word != "at work\n":
            raise SoakError(f"a client of {region[0]} did not get to work: {word!r}")
        return process

    def audit_prey(self, region, sectors, rng=None):
        export, tag, first, count = region
        client = Client(self.daemon.nbd, export)
        start = first + (rng.randrange(count - sectors + 1) if rng else 0)
        for at in range(start, start + sectors, 1024):
            client.send([(0, 0, 1, at * SECTOR, 1024 * SECTOR, b"")])
            _, error, data = client.receive()
            if error:
                raise SoakError(f"reading {export} at sector {at}: error {error}")
            self.count("audited_bytes", audit(data, tag, at, export))
        client.disconnect()

    def kill_fio(self, role):
        rng = self.rng(role)
        while self.checkpoint(role):
            export, first, mib = rng.choice(DOOMED_REGIONS)
            process = self.fio(export, [
                f"--rw={rng.choice(('randrw', 'randwrite', 'randread'))}", rng.choice(BLOCK_SIZES)[0],
                f"--iodepth={rng.choice(DEPTHS)}", f"--offset={first}m", f"--size={mib}m",
                "--time_based=1", "--runtime=600", "--thinktime=50000", "--thinktime_blocks=32"])  # fmt: skip
            self.over.wait(rng.uniform(0.2, 1.5))
            status = process.poll()
            process.kill()
            if status is not None:
                raise SoakError(f"fio on {export} ended by itself: {process.stderr.read()[-1500:]}")
            process.communicate()
            self.count("fio_killed")
            self.over.wait(rng.uniform(0, 4 * self.args.kill_seconds))

    # ------------------------------------------------------------ who changes and asks

    def ask(self, method, path, body=None):
        status, text = self.daemon.ask(method, path, body)
        if status >= 500 or (method == "GET" and status != 200):
            raise SoakError(f"{method} {path} {body or ''}: {status} {text}")
        return status, json.loads(text) if path != "/metrics" else text

    def swap_policies(self, role):
        rng, rounds = self.rng(role), []
        _, known = self.ask("GET", "/v1/policies")
        dispatchers = sorted({policy["dispatcher"] for policy in known})
        every = [policy["name"] for policy in known]
        every += [{"regulator": "token-bucket", "dispatcher": d} for d in dispatchers]
        while self.checkpoint(role):
            if not rounds:
                rounds = rng.sample(every, len(every))
            policy = rounds.pop()
            status, answer = self.ask("PUT", "/v1/devices/disk/policy", policy)
            if status != 200:
                raise SoakError(f"policy {policy} was refused: {answer}")
            self.policies_used.add(json.dumps(policy))
            self.count("swaps")
            self.over.wait(rng.uniform(0.5, 1.5) * self.args.swap_seconds)

    def change_objectives(self, role):
        rng = self.rng(role)
        limits = ("none", "none", "600 IOPS", "40 MB/s", "800 IOPS, 60 MB/s",
                  {"read": "60 MB/s", "write": "30 MB/s", "total": None, "burst": None},
                  {"write": "500 IOPS", "burst": {"write": "2000 IOPS", "length": "2 s"}})  # fmt: skip
        while self.checkpoint(role):
            objective = {
                "limit": "none", "weight": rng.choice((1, 50, 100, 1000)),
                "reservation": rng.choice(("none", "20 IOPS", "50 IOPS @ 16 KiB", "4 MB/s")),
                "latency": rng.choice((None, "5 ms", "50 ms", "1 s")),
                "priority": rng.choice(("best-effort", "best-effort 0", "best-effort 7", "realtime")),
            }  # fmt: skip
            vm = rng.choice(VMS)[0]
            changes = [objective, {"limit": rng.choice(limits)}]
            for change in changes:
                status, _ = self.ask("PATCH", f"/v1/vms/{vm}/objective", change)
                self.count("changes" if status == 200 else "refused")
            self.over.wait(rng.uniform(0.5, 1.5) * self.args.swap_seconds)

    def scrape(self, role):
        before, life = {}, 0
        while self.checkpoint(role):
            self.daemon.assert_runs()
            _, text = self.ask("GET", "/metrics")
            self.ask("GET", "/healthz")
            self.ask("GET", "/v1/stats?buckets=true")
            now = {}
            for line in text.splitlines():
                if not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    now[name] = float(value)
            if life != self.counts["lives"]:
                before, life = {}, self.counts["lives"]
            for name, value in before.items():
                base = name.split("{")[0]
                # These begin anew, or end, with a promise that is changed (docs/attainment.md).
                if base.startswith("tidegate_vm_promise_"):
                    continue
                if base.endswith(("_total", "_count", "_bucket")) and now.get(name, -1) < value:
                    raise SoakError(f"{name} went back from {value} to {now.get(name)}")
            before = now
            self.count("scrapes")
            self.over.wait(self.args.swap_seconds)

    # ------------------------------------------------------------ the end

    def verified(self):
        return self.counts["fio_bytes"] + self.ledger.verified

    def clean_up(self):
        self.over.set()
        # What waits for it has nothing to wait for any more.
        self.daemon.end(False)
        for thread in self.threads:
            thread.join(30)
        self.backing.remove()
