"""Runs programs one after another, checks what they did, and keeps what it cost. Knows no program
by name."""

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


# Seconds that processes a job leaves behind have to end.
LEFT_BEHIND = 20
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this program the parent of every process below it that loses its own: what they cost is
    told to it."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        fail(f"cannot become the parent of orphans: {os.strerror(ctypes.get_errno())}")


def orphans():
    """Waits for every process that is left, and gives what each cost, with those it has waited for.
    """
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
    """A file that jobs read or are compared with, made once a session, before any job that needs
    it."""

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
    """Something to measure: a command, and how what it prints and writes is checked."""

    def __init__(self, group, task, who, log, command, *, prints=None, reads=str, out=None,
                 check=None, needs=(),
                 rounds=None, times_itself=None, is_many=False):
        self.group, self.task, self.who, self.log = group, task, who, log
        self.command = command
        # Gives what has to be printed; what is compared of it; takes what was written and fails if
        # it is wrong.
        self.prints, self.reads, self.check = prints, reads, check
        # Starts processes: memory is that of all of them together. (CPU always is.)
        self.is_many = is_many
        self.out, self.needs = out, needs
        # At most so many rounds. Whatever is watched only, for its memory, has none.
        self.rounds = rounds
        # For what times a part of itself: takes what was printed and gives wall and CPU seconds.
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
        """Runs and checks it once; gives wall and CPU seconds. What it prints goes through a file.
        """
        command = [str(word) for word in self.command]
        remove(self.out)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [(os.POSIX_SPAWN_OPEN, 1, printed, flags, 0o644)]
        began = time.perf_counter()
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        watcher = Watcher(pid, self.is_many) if watch else None
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        # What a process cost has in it those that it has waited for. The others have come to us.
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
    """Looks at a process's memory every few milliseconds, for the largest it was seen to have.

    Of many processes, it is that of all together: resident memory as it is then, shared pages in
    each."""

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
        # A process that has ended has no memory any more.
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
    """What the system says of a process; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def with_descendants(pid):
    """A process, and all below it."""
    found = [pid]
    for each in found:
        try:
            # A thread's children each have a list of their own.
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
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def remove(path):
    if path and path.is_dir():
        shutil.rmtree(path)
    elif path:
        path.unlink(missing_ok=True)


def warm(path, size):
    """Writes and removes a file, so that no job pays for memory nobody has touched before."""
    with open(path, "wb") as file:
        block = bytes(1 << 20)
        for _ in range((size >> 20) + 64):
            file.write(block)
    path.unlink()


def measure(jobs, rounds, scratch):
    """Watches every job once for its memory, then times all of them in turn, round by round."""
    for job in jobs:
        job.make_ready()
    adopt_orphans()
    # Writing back in the middle of a measurement would be measured.
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
