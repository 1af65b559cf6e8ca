"""A medium with a volatile cache, as a plugin of nbdkit: `nbdkit python durability_medium.py`.

What is written lies in the cache until it is flushed, or until the cache has it written back early, in no order. The
file `TIDEGATE_MEDIUM` is what has reached the medium: what a power cut leaves. FUA is a flush of everything
(`FUA_EMULATE`), so that a lost flag shows.
"""

import builtins
import os
import random

import nbdkit

API_VERSION = 2
PAGE = 4096
SIZE = int(os.environ["TIDEGATE_MEDIUM_MIB"]) << 20
# Of so many writes one has a page of the cache written back early.
EARLY_ONE_IN = 8

random.seed(os.environ.get("TIDEGATE_MEDIUM_SEED", "0"))
medium = builtins.open(os.environ["TIDEGATE_MEDIUM"], "r+b", buffering=0)
# Number of a page: its bytes, newer than the medium's.
cache = {}


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


def open(readonly):  # noqa: A001
    return 1


def get_size(handle):
    return SIZE


def can_flush(handle):
    return True


def can_fua(handle):
    return nbdkit.FUA_EMULATE


def can_multi_conn(handle):
    return True


def page(number):
    if (cached := cache.get(number)) is not None:
        return cached
    return bytearray(os.pread(medium.fileno(), PAGE, number * PAGE))


def pieces(offset, length):
    """Page by page: its number, where in it, how much, and how far along."""
    done = 0
    while done < length:
        number, at = divmod(offset + done, PAGE)
        count = min(PAGE - at, length - done)
        yield number, at, count, done
        done += count


def pread(handle, buffer, offset, flags):
    for number, at, count, done in pieces(offset, len(buffer)):
        buffer[done : done + count] = page(number)[at : at + count]


def change(offset, length, data):
    for number, at, count, done in pieces(offset, length):
        bytes_of_page = page(number)
        bytes_of_page[at : at + count] = data[done : done + count] if data else bytes(count)
        cache[number] = bytes_of_page
    if cache and random.randrange(EARLY_ONE_IN) == 0:
        write_back(random.choice(list(cache)))


def write_back(number):
    os.pwrite(medium.fileno(), cache.pop(number), number * PAGE)


def pwrite(handle, buffer, offset, flags):
    change(offset, len(buffer), bytes(buffer))


def zero(handle, count, offset, flags):
    change(offset, count, None)


def trim(handle, count, offset, flags):
    change(offset, count, None)


def flush(handle, flags):
    for number in sorted(cache):
        write_back(number)
