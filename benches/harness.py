"""Runs programs in turn, checks their outputs and records their cost. Knows no program by name."""

import ctypes
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"run.py: {text}")


# Seconds within which processes that a job leaves behind must end.
LEFT_BEHIND = 20
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this program the parent of orphaned descendants, so that it learns their cost."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        fail(f"cannot become the parent of orphans: {os.strerror(ctypes.get_errno())}")


def orphans():
    """Waits for all remaining processes; returns the cost of each, including its children."""
    until = time.monotonic() + LEFT_BEHIND
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            yield usage
        elif time.monotonic() > until:
            fail("a job has left processes behind that do not end")
        else:
            time.sleep(0.01)


class Prepared:
    """A file that jobs read or are compared with, made once per session, before the jobs."""

    def __init__(self, path, *command):
        self.path, self.command = path, command
        self.there = False

    def __str__(self):
        return str(self.path)

    def make(self):
        if self.there:
            return
        say(f"making {self.path}")
        words = [str(word) for word in self.command]
        if subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode:
            fail(f"{' '.join(words)} failed")
        self.there = True


class Job:
    """A command to measure, and the checks of what it prints and writes."""

    def __init__(self, group, task, who, log, command, *, prints=None, reads=str, out=None,
                 check=None, needs=(),
                 rounds=None, times_itself=None, is_many=False):
        self.group, self.task, self.who, self.log = group, task, who, log
        self.command = command
        # `prints` returns the expected text, `reads` extracts the compared part of it, `check`
        # takes what was written.
        self.prints, self.reads, self.check = prints, reads, check
        # It starts processes: memory is the sum over all of them. (CPU always is.)
        self.is_many = is_many
        self.out, self.needs = out, needs
        # The maximum number of rounds; 0 if only the memory is measured.
        self.rounds = rounds
        # For programs that time a part of themselves: returns wall and CPU seconds from the
        # printed text.
        self.times_itself = times_itself
        self.walls, self.cpus = [], []
        self.peak = self.anonymous = self.size = 0

    @property
    def key(self):
        return self.group, self.task, self.log.name

    def named(self, word):
        return word in f"{self.task} {self.log.name} {self.who}"

    def make_ready(self):
        self.log.make()
        for prepared in self.needs:
            prepared.make()

    def run_once(self, printed, watch=False):
        """Runs and checks it once; returns wall and CPU seconds. Its output goes through a file."""
        command = [str(word) for word in self.command]
        remove(self.out)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [(os.POSIX_SPAWN_OPEN, 1, printed, flags, 0o644)]
        began = time.perf_counter()
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        watcher = Watcher(pid, self.is_many) if watch else None
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        # The cost of a process includes the children it waited for. Orphans have come to us.
        cost = wall, sum(each.ru_utime + each.ru_stime for each in (usage, *orphans()))
        if watcher:
            self.peak, self.anonymous = watcher.end()
        text = printed.read_text()
        printed.unlink()
        if status:
            fail(f"{' '.join(command)} failed")
        if self.prints and self.reads(text) != self.reads(self.prints()):
            fail(f"{' '.join(command)} did not print what it should, but:\n{text[:2000]}")
        if self.out:
            self.size = size_of(self.out)
        if self.check and not self.check(self.out):
            fail(f"{' '.join(command)} did not write what it should; it is kept")
        remove(self.out)
        return self.times_itself(text) if self.times_itself else cost

    def time(self, printed):
        wall, cpu = self.run_once(printed)
        self.walls.append(wall)
        self.cpus.append(cpu)

    def wall(self):
        return statistics.median(self.walls)

    def cpu(self):
        return statistics.median(self.cpus)


class Watcher(threading.Thread):
    """Samples a process's memory every few milliseconds and keeps the maximum.

    For many processes, it is the sum: resident memory, with shared pages counted in each."""

    def __init__(self, pid, is_many=False):
        super().__init__(daemon=True)
        self.pid, self.look = pid, self.look_at_all if is_many else self.look_at_one
        self.stopped = threading.Event()
        self.peak = self.anonymous = 0
        self.start()

    def run(self):
        while not self.stopped.wait(0.004):
            self.look()

    def look_at_one(self):
        text = status_of(self.pid)
        # A process that has ended has no memory.
        if "\nVmHWM:" in text:
            self.peak = max(self.peak, kib(text, "VmHWM"))
            self.anonymous = max(self.anonymous, kib(text, "RssAnon"))

    def look_at_all(self):
        texts = [text for pid in with_descendants(self.pid)
                 if "\nVmRSS:" in (text := status_of(pid))]
        self.peak = max(self.peak, sum(kib(text, "VmRSS") for text in texts))
        self.anonymous = max(self.anonymous, sum(kib(text, "RssAnon") for text in texts))

    def end(self):
        self.stopped.set()
        self.join()
        return self.peak, self.anonymous


def status_of(pid):
    """The status of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def with_descendants(pid):
    """A process and all its descendants."""
    found = [pid]
    for each in found:
        try:
            # Every thread has its own list of children.
            lists = [(task / "children").read_text()
                     for task in Path(f"/proc/{each}/task").iterdir()]
        except OSError:
            continue
        found += [int(child) for children in lists for child in children.split()]
    return found


def kib(status, field):
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M)[1])


def two_numbers(text):
    """The wall and CPU seconds that a program printed."""
    wall, cpu = text.split()
    return float(wall), float(cpu)


def size_of(path):
    """The bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def remove(path):
    if path and path.is_dir():
        shutil.rmtree(path)
    elif path:
        path.unlink(missing_ok=True)


def warm(path, size):
    """Writes and removes a file, so that no job pays for untouched memory."""
    with open(path, "wb") as file:
        block = bytes(1 << 20)
        for _ in range((size >> 20) + 64):
            file.write(block)
    path.unlink()


def measure(jobs, rounds, scratch):
    """Measures the memory of every job once, then times all of them in turn, round by round."""
    for job in jobs:
        job.make_ready()
    adopt_orphans()
    # Otherwise writeback would be part of a measurement.
    os.sync()
    printed = scratch.with_suffix(".printed")
    for job in jobs:
        say(f"memory: {job.task}, {job.log.name}, {job.who}")
        job.run_once(printed, watch=True)
    for number in range(rounds):
        for job in jobs:
            if job.rounds is not None and number >= job.rounds:
                continue
            say(f"round {number + 1} of {rounds}: {job.task}, {job.log.name}, {job.who}")
            if job.out:
                warm(scratch, job.log.bytes)
            job.time(printed)
