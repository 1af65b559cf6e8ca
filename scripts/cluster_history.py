"""Checks of `scripts/cluster-test` on etcd's history: what every revision of the state held.

The history is replayed event by event. It knows nothing of Tidegate's own rules but the
meaning of the keys (docs/cluster.md), so that it finds what those rules miss. Run as a
program, it checks that it refuses histories with each fault that it looks for.
"""

import base64
import json

NANOS = 10**9
# Folder of clocks, which daemons publish all the time: no part of the state.
CLOCKS = "clocks/"
# Seconds by which a command's clock may have been read before the commit of another one that it
# comes after: it reads it, loads the state, and commits.
READ_EARLIER_SECONDS = 30
# Fields with the time of a command that has put a record.
TIMES = ("steady_since_ns", "as_of_ns", "begun_ns", "arrived_ns")


class HistoryError(Exception):
    """The history has a state that must not be."""


def decode(text):
    """Bytes of etcd's JSON as text."""
    return base64.b64decode(text or "").decode()


def read_events(line):
    """Events of a line of `etcdctl watch -w json`, in their order: revision, key, value or `None`."""
    events = []
    for event in json.loads(line).get("Events") or ():
        pair = event["kv"]
        value = None if event.get("type") == 1 else decode(pair.get("value"))
        events.append((pair["mod_revision"], decode(pair["key"]), value))
    return events


class History:
    """State of the keys below `prefix`, as of the last event, and all placements there were."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.keys = {}
        self.commits = 0
        # Of each job in the order of time: host, begin, deadline, bytes, end (`None`: none yet).
        self.placed = {}
        # Of each job in the order of time: record, whether it was placed, revision of its removal.
        self.requested = {}
        # Latest time in the records that each revision has put, of those that have one.
        self.times = []

    def replay(self, events):
        """Applies events, and checks the state after each revision."""
        position = 0
        while position < len(events):
            revision = events[position][0]
            end = position
            while end < len(events) and events[end][0] == revision:
                end += 1
            self._apply(revision, events[position:end])
            position = end

    def _apply(self, revision, events):
        changes = []
        for _, key, value in events:
            name = key.removeprefix(self.prefix)
            if not key.startswith(self.prefix) or name.startswith(CLOCKS):
                continue
            before = self.keys.get(name)
            changes.append((name, before, value))
            if value is not None:
                self.keys[name] = value
            elif before is not None:
                del self.keys[name]
            else:
                raise HistoryError(f"revision {revision} deletes {key}, which was not there")
        times = [time for _, _, value in changes if value for time in times_of(json.loads(value))]
        if times:
            self.times.append((revision, max(times)))
        # A transaction puts a placement before its job: both are looked at once it is complete.
        for name, before, value in changes:
            kind, _, rest = name.partition("/")
            if kind == "transfers":
                self._transfer(revision, rest, before, value)
        for name, before, value in changes:
            kind, _, rest = name.partition("/")
            if kind == "placements":
                self._placement(revision, rest, before, value)
            elif name == "revision":
                self._commit(revision, value)
        self._check(revision)

    def _transfer(self, revision, job, before, value):
        lives = self.requested.setdefault(job, [])
        if value is None:
            lives[-1]["gone"] = revision
        elif before is None:
            lives.append({"transfer": json.loads(value), "placed": False, "gone": None})
        else:
            lives[-1]["transfer"] = json.loads(value)

    def _commit(self, revision, value):
        number = json.loads(value)["revision"]
        if number != self.commits + 1:
            raise HistoryError(f"revision {revision} is commit {number}, after {self.commits}")
        self.commits = number

    def _placement(self, revision, job, before, value):
        lives = self.placed.setdefault(job, [])
        if value is None:
            lives[-1]["ended"] = revision
            return
        placement = json.loads(value)
        if before is None:
            transfer = json.loads(self.keys.get(f"transfers/{job}", "null"))
            lives.append({"host": placement["host"], "begun": placement["begun_ns"],
                          "transfer": transfer, "ended": None, "revision": revision})  # fmt: skip
            if requested := self.requested.get(job):
                requested[-1]["placed"] = True
        elif json.loads(before)["host"] != placement["host"]:
            raise HistoryError(f"revision {revision} moves {job} to another host")

    def _records(self, kind):
        for key, value in self.keys.items():
            if key.startswith(f"{kind}/"):
                yield key.removeprefix(f"{kind}/"), json.loads(value)

    def _check(self, revision):
        """State invariants: records fit each other, and no host has more than it takes."""
        hosts = dict(self._records("hosts"))
        counts = dict.fromkeys(hosts, 0)
        for job, placement in self._records("placements"):
            if f"transfers/{job}" not in self.keys:
                raise HistoryError(f"revision {revision} has a placement of {job}, which is no job")
            if placement["host"] not in hosts:
                raise HistoryError(f"revision {revision} has {job} on {placement['host']}, which is no host")
            counts[placement["host"]] += 1
        for host, count in counts.items():
            if count > hosts[host]["max_transfers"]:
                most = hosts[host]["max_transfers"]
                raise HistoryError(f"revision {revision} has {count} jobs on {host}, {most} are allowed")
        for start, value in self._records("starts"):
            job = start.removeprefix(f"{value['host']}/")
            placement = json.loads(self.keys.get(f"placements/{job}", "{}"))
            if (placement.get("host"), placement.get("begun_ns")) != (value["host"], value["begun_ns"]):
                raise HistoryError(f"revision {revision} has a start of {start}, which is not placed there")
        for job, _ in self._records("entitlements"):
            if f"placements/{job}" not in self.keys:
                raise HistoryError(f"revision {revision} has an entitlement of {job}, which is not placed")

    def vanished(self, job):
        """Reason why the removal of a job that was never placed is no discard; `None`: it is one.

        A job may be discarded by a command whose clock says that its deadline has passed. Clocks are
        those of one machine here.
        """
        for life in self.requested.get(job, ()):
            if life["placed"] or life["gone"] is None:
                continue
            due = life["transfer"]["arrived_ns"] + life["transfer"]["deadline_ns"]
            # The command that discards it may put nothing with a time; one after it does.
            known = [(at, time) for at, time in self.times if at >= life["gone"]]
            for at, time in known[:1]:
                slack = 0 if at == life["gone"] else READ_EARLIER_SECONDS * NANOS
                if time + slack < due:
                    return f"revision {life['gone']} removes {job} {(due - time) / NANOS:.1f} s before its deadline"
        return None

    def differences(self, view, now_ns):
        """Differences of the present state from `tidegate place list -o json`, as sentences."""
        there = {host["host"]: host for host in view["hosts"]}
        hosts = dict(self._records("hosts"))
        transfers = dict(self._records("transfers"))
        placements = dict(self._records("placements"))
        found = [f"{host} is no host" for host in there.keys() - hosts.keys()]
        for name, host in hosts.items():
            if name not in there:
                found.append(f"host {name} is not shown")
                continue
            if there[name]["drained"] != host.get("drained", False):
                found.append(f"host {name} is shown with drained = {there[name]['drained']}")
            # Jobs of daemons that no placer knows are shown as HOST/VM.
            shown = {job["name"]: job["size_bytes"] for job in there[name]["jobs"] if "/" not in job["name"]}
            placed = {job: transfers[job]["bytes"] for job, it in placements.items() if it["host"] == name}
            if shown != placed:
                jobs = sorted(dict(shown.items() ^ placed.items()))
                found.append(f"host {name} is shown with other jobs than it has: {', '.join(jobs)}")
        shown = {job["name"] for job in view["waiting"]}
        for job, transfer in transfers.items():
            is_overdue = transfer["arrived_ns"] + transfer["deadline_ns"] <= now_ns
            if job not in placements and job not in shown and not is_overdue:
                found.append(f"{job} waits, and is not shown")
        for job in shown:
            if job not in transfers or job in placements:
                found.append(f"{job} is shown as waiting, and does not wait")
        return found

    def overfilled(self, bandwidths):
        """Hosts with more than they can do, by the demand that any schedule has to meet.

        Jobs that began at or after `a` and are due by `d` need `d - a` of the host at least for
        their bytes. Nothing of forecasts or classes goes into that; no job is ended before it is
        due. Returns the largest part of an interval that is used, of each host.
        """
        used = dict.fromkeys(bandwidths, (0.0, ""))
        for host, bandwidth in bandwidths.items():
            jobs = []
            for job, lives in self.placed.items():
                for life in lives:
                    if life["host"] == host and life["transfer"]:
                        # The deadline of a job that waited counts from its placement (PCOS).
                        due = life["begun"] + life["transfer"]["deadline_ns"]
                        jobs.append((life["begun"], due, life["transfer"]["bytes"], job))
            for begin in {job[0] for job in jobs}:
                total, within = 0, sorted((j for j in jobs if j[0] >= begin), key=lambda j: j[1])
                for _, due, size, job in within:
                    total += size
                    part = total / bandwidth / ((due - begin) / NANOS)
                    if part > used[host][0]:
                        used[host] = (part, job)
        return used


def times_of(record):
    """Times at which a record was put, in nanoseconds."""
    return [record[field] for field in TIMES if field in record]


# ------------------------------------------------------------------------ its own test

HOST = {"max_transfers": 2}
JOB = {"bytes": 600, "deadline_ns": 10 * NANOS, "arrived_ns": 0}


def placement(host, begun=0):
    return {"host": host, "begun_ns": begun * NANOS}


def sound():
    """A history with two hosts, a job that comes and goes, and one that is placed again."""
    return [
        {"hosts/a": HOST, "hosts/b": HOST, "revision": {"revision": 1}},
        {"placements/x": placement("a"), "transfers/x": JOB, "revision": {"revision": 2}},
        {"placements/x": None, "transfers/x": None, "revision": {"revision": 3}},
        {"placements/x": placement("b", 20), "transfers/x": JOB, "revision": {"revision": 4}},
    ]


def faulty():
    """Histories that begin as a sound one, with what is wrong in each."""
    second = {"placements/x": placement("a", 20)}
    many = {f"{kind}/{n}": value for n in range(2)
            for kind, value in (("placements", placement("b")), ("transfers", JOB))}  # fmt: skip
    return {
        "moves x": [*sound(), {**second, "revision": {"revision": 5}}],
        "is commit 6": [*sound(), {"revision": {"revision": 6}}],
        "which was not there": [*sound(), {"transfers/y": None}],
        "which is no job": [*sound(), {"placements/y": placement("a")}],
        "which is no host": [*sound(), {"placements/y": placement("c"), "transfers/y": JOB}],
        "are allowed": [*sound(), many],
        "which is not placed": [*sound(), {"entitlements/y": {}}],
        "not placed there": [*sound(), {"starts/a/x": placement("a", 20)}],
    }


def replayed(transactions):
    history = History("/p/")
    for number, keys in enumerate(transactions, start=1):
        events = [(number, f"/p/{key}", None if value is None else json.dumps(value)) for key, value in keys.items()]
        history.replay(events)
    return history


def check_vanished():
    """Fails if a job that vanishes early is not found, or one that is discarded is."""
    waits = [*sound(), {"transfers/y": JOB, "revision": {"revision": 5}}]

    def gone(with_keys, *later):
        removal = {"transfers/y": None, **with_keys, "revision": {"revision": 6}}
        return replayed([*waits, removal, *later]).vanished("y")

    def steady(seconds):
        return {"hosts/a": {**HOST, "steady_since_ns": seconds * NANOS}}

    assert replayed(waits).vanished("y") is None, "it still waits"
    assert gone(steady(10)) is None, "its deadline"
    assert "removes y 0.5 s before" in gone({"hosts/a": {**HOST, "steady_since_ns": 9_500_000_000}})
    assert gone({}) is None, "nothing tells"
    # By the next command that puts a time.
    after = {**steady(11), "revision": {"revision": 7}}
    assert gone({}, after) is None
    late = JOB["deadline_ns"] // NANOS - READ_EARLIER_SECONDS - 1
    early = {**steady(late), "revision": {"revision": 7}}
    assert "before its deadline" in gone({}, early)
    placed = {"placements/y": placement("a"), "revision": {"revision": 6}}
    ended = {"placements/y": None, "transfers/y": None, **steady(1), "revision": {"revision": 7}}
    assert replayed([*waits, placed, ended]).vanished("y") is None, "it was ended"


def check_differences():
    """Fails if a view that is not of the state is not found."""
    history = replayed([*sound(), {"transfers/y": JOB, "revision": {"revision": 5}}])

    def view(jobs, waiting, hosts=("a", "b"), drained=False):
        on_b = [{"name": name, "size_bytes": size} for name, size in jobs.items()]
        there = {"a": [{"name": "a/live", "size_bytes": 1}], "b": on_b, "c": []}
        return {
            "hosts": [{"host": host, "drained": drained, "jobs": there[host]} for host in hosts],
            "waiting": [{"name": name} for name in waiting],
        }

    right = view({"x": 600}, ["y"])
    assert history.differences(right, 0) == [], history.differences(right, 0)
    assert history.differences(view({"x": 600}, []), 10 * NANOS) == [], "overdue"
    wrong = {
        "y waits, and is not shown": view({"x": 600}, []),
        "x is shown as waiting": view({"x": 600}, ["y", "x"]),
        "z is shown as waiting": view({"x": 600}, ["y", "z"]),
        "has: x": view({}, ["y"]),
        "has: x ": view({"x": 601}, ["y"]),
        "has: z": view({"x": 600, "z": 1}, ["y"]),
        "host b is not shown": view({}, ["y"], hosts=("a",)),
        "c is no host": view({"x": 600}, ["y"], hosts=("a", "b", "c")),
        "drained = True": view({"x": 600}, ["y"], drained=True),
    }
    for expected, other in wrong.items():
        found = history.differences(other, 0)
        assert any(expected.strip() in text for text in found), f"{expected} is not in: {found}"


def check_itself():
    """Fails with an assertion if a fault is not found, or a sound history is refused."""
    history = replayed(sound())
    assert history.commits == 4 and len(history.placed["x"]) == 2, history.placed
    used = history.overfilled({"a": 60, "b": 30})
    assert used == {"a": (1.0, "x"), "b": (2.0, "x")}, used
    for expected, transactions in faulty().items():
        try:
            replayed(transactions)
        except HistoryError as error:
            assert expected in str(error), f"{expected} is not in: {error}"
        else:
            raise AssertionError(f"not found: {expected}")
    check_vanished()
    check_differences()


if __name__ == "__main__":
    check_itself()
    print(f"{len(faulty())} faults are found")
