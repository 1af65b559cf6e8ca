"""Processes of `scripts/cluster-test`: etcd's members, NATS, the daemons of the hosts, their guests."""

import json
import os
import random
import signal
import subprocess
import threading
import time

from cluster_history import read_events
from soak_nbd import Gone, Ledger, WrongBytes
from soak_nbd import Client as NbdClient
from soak_world import SoakError, UnixConnection, die_with_parent, listens

START_SECONDS_MAX = 60
MIB = 1 << 20
SECTOR = 512
GUEST_SECTORS = 8192
# Name of the array that the hosts share.
ARRAY = "san-1"


class ProcessError(Exception):
    """A process does not start, or ended by itself."""


class Process:
    """A program on a host of the network, which can be killed, stopped and started again."""

    def __init__(self, name, words, log):
        self.name, self.words, self.log = name, words, log
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NO_COLOR": "1"},
                preexec_fn=die_with_parent,
                start_new_session=True,
            )

    def signal(self, number):
        self.child.send_signal(number)

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def assert_runs(self):
        if self.child is None or self.child.poll() is not None:
            words = self.log.read_text(errors="replace")[-2000:]
            raise ProcessError(f"{self.name} has ended by itself:\n{words}")


class Etcd:
    """A cluster of etcd, a member on each host, without compaction."""

    def __init__(self, network, directory):
        self.network = network
        members = ",".join(f"m{host}=http://{network.address(host)}:2380" for host in network.hosts)
        self.members = {}
        for host in network.hosts:
            client, peer = (f"http://{network.address(host)}:{port}" for port in (2379, 2380))
            words = network.inside(
                host, "etcd", "--name", f"m{host}", "--data-dir", directory / f"m{host}",
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", members, "--auto-compaction-retention", "0",
            )  # fmt: skip
            self.members[host] = Process(f"etcd of host {host}", words, directory / f"m{host}.log")

    def url(self, host):
        return f"http://{self.network.address(host)}:2379"

    def urls(self):
        return ",".join(map(self.url, self.network.hosts))

    def control(self, *words, host=1, check=True):
        """Output of `etcdctl`, asked on `host` of its own member."""
        words = self.network.inside(host, "etcdctl", "--endpoints", self.url(host), *words)
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if check and done.returncode:
            raise ProcessError(f"etcdctl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def start(self):
        for member in self.members.values():
            member.start()
        self.wait_healthy()

    def wait_healthy(self):
        """Waits until every member answers reads that go through the leader."""
        deadline = time.monotonic() + START_SECONDS_MAX
        for host, member in self.members.items():
            while not self.control("get", "health", "-w", "json", host=host, check=False):
                member.assert_runs()
                if time.monotonic() > deadline:
                    raise ProcessError(f"{member.name} does not answer for {START_SECONDS_MAX} s")
                time.sleep(0.1)

    def leader(self):
        """Host of the leading member."""
        for host in self.network.hosts:
            status = json.loads(self.control("endpoint", "status", "-w", "json", host=host))[0]["Status"]
            if status["leader"] == status["header"]["member_id"]:
                return host
        raise ProcessError("etcd has no leader")

    def keys(self, prefix):
        """Present keys and values below a prefix, in etcd's JSON, and the revision."""
        answer = json.loads(self.control("get", "--prefix", prefix, "-w", "json"))
        return answer.get("kvs") or [], answer["header"]["revision"]

    def history(self, end):
        """Events of all keys below `/` from the first revision on, up to the one of key `end`, in lists."""
        self.control("put", end, "")
        words = self.network.inside(
            1, "etcdctl", "--endpoints", self.url(1), "watch", "--prefix", "/", "--rev", "1", "-w", "json"
        )
        environment = {**os.environ, "ETCDCTL_API": "3"}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as watch:
            for line in watch.stdout:
                events = read_events(line)
                yield events
                if any(key == end for _, key, _ in events):
                    break
            watch.kill()


class Nats:
    """The server that carries the hosts' shares of the array, on the first host."""

    def __init__(self, network, directory):
        address = network.address(1)
        self.url = f"nats://{address}:4222"
        words = network.inside(1, "nats-server", "--addr", address, "--port", 4222)
        self.process = Process("nats-server", words, directory / "nats-server.log")

    def start(self):
        self.process.start()


class Daemon:
    """`tidegate serve` on a host, with disks of guests and of jobs that it may start.

    One guest's disk is on a device of the host's own, the other's on the array that all hosts share.
    """

    def __init__(self, tidegate, network, host, directory, jobs, cluster, exchange):
        self.host, self.directory = host, directory
        directory.mkdir()
        self.socket, self.nbd = directory / "control.sock", directory / "nbd.sock"
        config = directory / "tidegate.toml"
        text = (
            '[control]\nsocket = "control.sock"\n[store]\npath = "store.redb"\n'
            '[[listen]]\nunix = "nbd.sock"\n'
            f'{cluster}[[device]]\nname = "disk"\nkind = "file"\n'
            '[[vm]]\nname = "guest"\ndevice = "disk"\nobjective = { reservation = "100 IOPS" }\n'
            f'[[vm.disk]]\npath = "guest.raw"\ncreate = "sparse"\nsize = "{GUEST_SECTORS * SECTOR // MIB} MiB"\n'
            f'{exchange}[[device]]\nname = "san"\nkind = "file"\narray = "{ARRAY}"\npolicy = "vfair"\n'
            'profile = "ssd-sata-300gb"\nadaptive_depth = false\n'
            '[[vm]]\nname = "sharer"\ndevice = "san"\n'
            f'[[vm.disk]]\npath = "sharer.raw"\ncreate = "sparse"\nsize = "{GUEST_SECTORS * SECTOR // MIB} MiB"\n'
        )
        for job in jobs:
            text += f'[[vm]]\nname = "{job}"\ndevice = "disk"\n[[vm.disk]]\npath = "{job}.raw"\ncreate = "sparse"\nsize = "1 MiB"\n'
        config.write_text(text)
        words = network.inside(host, tidegate, "serve", config)
        self.process = Process(f"tidegate of host {host}", words, directory / "log")

    def start(self):
        self.process.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (listens(self.nbd) and listens(self.socket)):
            self.process.assert_runs()
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.process.name} does not listen on {self.socket}")
            time.sleep(0.05)

    def hears(self):
        """Number of other hosts of the array that are heard."""
        _, device = self.ask("/v1/devices/san")
        return sum(peer["presence"] == "live" for peer in device["exchange"]["peers"])

    def ask(self, path):
        """Parsed answer of the control API."""
        connection = UnixConnection(self.socket)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class Guest(threading.Thread):
    """Verified I/O on a host's disk without pause; keeps the longest time without an answer.

    `disturbed` is set while the host itself is killed or stopped: what it may then do, lose
    the connection or wait, is an error at any other time.
    """

    def __init__(self, daemon, export, seed):
        super().__init__(daemon=True)
        self.host, self.export = daemon, export
        self.ledger = Ledger(random.Random(seed), export, daemon.host, GUEST_SECTORS)
        self.disturbed = threading.Event()
        self.ended = threading.Event()
        self.longest = 0.0
        self.failure = None

    def run(self):
        try:
            while not self.ended.is_set():
                self._connection()
        except (WrongBytes, SoakError, OSError) as error:
            self.failure = f"{self.export} of host {self.host.host}: {error}"

    def _connection(self):
        working = False
        try:
            client = NbdClient(self.host.nbd, self.export)
            self.ledger.reconcile(client)
            working = True
            answered = time.monotonic()
            while not self.ended.is_set():
                disturbed = self.disturbed.is_set()
                self.ledger.burst(client, 4)
                if self.ledger.rng.random() < 0.05:
                    self.ledger.flush(client)
                now = time.monotonic()
                if not disturbed and not self.disturbed.is_set():
                    self.longest = max(self.longest, now - answered)
                answered = now
                self.ended.wait(0.01)
            client.disconnect()
        except Gone as error:
            if not self.disturbed.is_set():
                raise WrongBytes(f"the daemon closed the connection: {error}") from None
            # The daemon was killed, the page cache was not: what it had acknowledged is there.
            # Until a connection has read all sectors, those of the last one may be of two writes.
            if working:
                self.ledger.disconnected(in_order=True)
            self.ended.wait(0.1)


def stop(process):
    process.signal(signal.SIGSTOP)


def resume(process):
    process.signal(signal.SIGCONT)
