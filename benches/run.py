#!/usr/bin/env python3
"""Measures Sluice beside a bare loop and LCM's own tools, and prints the result as Markdown.

    benches/run.py [--rounds 5] [--data FOLDER] [--out FOLDER] [--only WORD] [--large]

Makes the logs up where they are missing, builds, runs every job and every peer in turn, round by round,
and checks what each printed and wrote. What is missing of the peers is left out, and said. Needs Linux.
"""

import argparse
import filecmp
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".cache" / "peers-venv"
# Events with the name of their log: number of events or millions of bytes, and how it is made.
LOGS = {"dgc": ["dgc", "--mb", "1000"], "small": ["small", "--events", "10000000"]}
DROP, KEEP = "CAM_", "ARM_"


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"run.py: {text}")


class Log:
    """A made-up log, and how many events and bytes of payload each of its channels has."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        self.bytes = path.stat().st_size
        rows = [line.split("\t") for line in table_of(path).read_text().splitlines()]
        self.channels = {channel: (int(events), int(size)) for channel, events, size in rows}
        self.events = sum(events for events, _ in self.channels.values())

    def counted(self):
        """What a program that counts events and bytes of payload has to print."""
        return "".join(f"{c}\t{n}\t{size}\n" for c, (n, size) in sorted(self.channels.items()))

    def carried(self, keeps=lambda channel: True):
        """What a pipeline that keeps some channels has to print."""
        rows = sorted(self.channels.items())
        return "".join(f"{c}\t{n}\t{n if keeps(c) else 0}\n" for c, (n, _) in rows)


def table_of(path):
    return path.with_suffix(".tsv")


class Job:
    """Something to measure: a command, what it has to print, and what it has to write."""

    def __init__(self, task, who, log, command, prints=None, writes=None):
        self.task, self.who, self.log = task, who, log
        self.command = [str(word) for word in command]
        self.prints = prints
        # Our own path and one that holds what has to be in it.
        self.writes = writes
        self.walls, self.cpus = [], []
        self.peak = self.anonymous = 0

    @property
    def key(self):
        return self.task, self.log.name

    def run_once(self, out, watch=False):
        """Runs and checks it once; gives wall and CPU seconds."""
        if out.exists():
            out.unlink()
        printed = out.with_suffix(".printed")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [(os.POSIX_SPAWN_OPEN, 1, printed, flags, 0o644)]
        began = time.perf_counter()
        pid = os.posix_spawn(self.command[0], self.command, os.environ, file_actions=actions)
        watcher = Watcher(pid) if watch else None
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        if watcher:
            self.peak, self.anonymous = watcher.end()
        if status:
            fail(f"{' '.join(self.command)} failed")
        if self.prints is not None and printed.read_text() != self.prints:
            fail(f"{' '.join(self.command)} did not print what it should")
        if self.writes and not filecmp.cmp(out, self.writes, shallow=False):
            fail(f"{' '.join(self.command)} did not write what it should")
        for path in (out, printed):
            path.unlink(missing_ok=True)
        return wall, usage.ru_utime + usage.ru_stime

    def time(self, out):
        wall, cpu = self.run_once(out)
        self.walls.append(wall)
        self.cpus.append(cpu)

    def wall(self):
        return statistics.median(self.walls)

    def cpu(self):
        return statistics.median(self.cpus)


class Watcher(threading.Thread):
    """Looks at a process's memory every few milliseconds, for the largest it was seen to have."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status = f"/proc/{pid}/status"
        self.stopped = threading.Event()
        self.peak = self.anonymous = 0
        self.start()

    def run(self):
        while not self.stopped.wait(0.004):
            try:
                text = Path(self.status).read_text()
            except OSError:
                return
            # A process that has ended has no memory any more.
            if "\nVmHWM:" in text:
                self.peak = max(self.peak, kib(text, "VmHWM"))
                self.anonymous = max(self.anonymous, kib(text, "RssAnon"))

    def end(self):
        self.stopped.set()
        self.join()
        return self.peak, self.anonymous


def kib(status, field):
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M)[1])


def build():
    command = ["cargo", "build", "--release", "--quiet", "-p", "sluice-benches"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return Path(target) / "release"


def made(programs, data, name, how):
    """The log of that name, made up if it is not there yet or was made by another generator."""
    path = data / f"{name}.lcm"
    stamp = data / f"{name}.made"
    generator = (HERE / "src" / "mix.rs").read_text() + repr(how)
    if not stamp.exists() or stamp.read_text() != generator or not path.exists():
        say(f"making {path}")
        with open(table_of(path), "wb") as table:
            subprocess.run([programs / "gen-log", *how, path], stdout=table, check=True)
        stamp.write_text(generator)
    return Log(name, path)


class Peers:
    """LCM's own tools; what is not there is None."""

    def __init__(self):
        self.missing = []
        self.python = self.find("Python reader", VENV / "bin" / "python")
        package = next(VENV.glob("lib/python*/site-packages"), None)
        if self.python and not any((package / "lcm").glob("_lcm*.so")):
            self.python = self.miss("Python reader")
        self.filter = self.find("lcm-logfilter", VENV / "bin" / "lcm-logfilter")
        self.reader, self.version = self.c_reader(package)

    def miss(self, what):
        self.missing.append(what)
        return None

    def find(self, what, path):
        return path if path.exists() else self.miss(what)

    def c_reader(self, package):
        """The C reader, with the liblcm of the wheel if it has one, or else the system's."""
        program = ROOT / ".cache" / "read_c"
        flags, version = ["-llcm"], "system"
        library = package and next((package / "lib").glob("liblcm.so.*.*"), None)
        if library:
            flags = [f"-I{package / 'include'}", str(library), f"-Wl,-rpath,{library.parent}"]
            version = library.name.removeprefix("liblcm.so.")
        program.parent.mkdir(exist_ok=True)
        command = ["cc", "-O2", "-o", str(program), str(HERE / "peers" / "read_c.c"), *flags]
        built = subprocess.run(command, capture_output=True, check=False)
        return (program, version) if built.returncode == 0 else (self.miss("C reader (liblcm)"), None)


def jobs_of(log, programs, peers, out, data):
    """Everything that is measured on a log."""
    loop, job = programs / "read-loop", programs / "run-job"

    def reading(who, *command):
        return Job("read", who, log, [*command], prints=log.counted())

    yield reading("bare loop", loop, log.path)
    yield Job("read", "sluice", log, [job, "null", log.path], prints=log.carried())
    yield Job("read", "sluice --jobs 1", log, [job, "null", "--jobs", 1, log.path], prints=log.carried())
    for stages in (1, 2, 4):
        command = [job, "null", "--jobs", 1, "--stages", stages, log.path]
        yield Job("read", f"sluice --jobs 1, {stages} stages", log, command, prints=log.carried())
    if peers.reader:
        yield reading("C liblcm", peers.reader, log.path)
    if peers.python:
        yield reading("Python lcm", peers.python, HERE / "peers" / "read_py.py", log.path)

    def copying(who, *command, prints="", writes=log.path):
        return Job("copy", who, log, [*command], prints, writes)

    yield copying("cp", shutil.which("cp"), log.path, out)
    yield copying("bare loop", loop, log.path, "--out", out)
    yield copying("sluice", job, "copy", log.path, out, prints=log.carried())
    if peers.filter:
        yield copying("lcm-logfilter", peers.filter, "-c", ".*", log.path, out)

    drops = log.name == "dgc"
    some = data / f"{log.name}.some"
    chosen = ["--drop", DROP] if drops else ["--keep", KEEP]
    subprocess.run([loop, log.path, "--out", some, *chosen], check=True)
    carried = log.carried(lambda channel: channel.startswith(chosen[1]) != drops)
    globbed = [chosen[0], chosen[1] + "*"]
    task = "filter: all but cameras" if drops else "filter: half the channels"

    def filtering(who, *command, prints="", writes=some):
        return Job(task, who, log, [*command], prints, writes)

    yield filtering("bare loop", loop, log.path, "--out", out, *chosen)
    yield filtering("sluice", job, "copy", log.path, out, *globbed, prints=carried)
    if peers.filter:
        # Other event numbers than ours, unless ours are renumbered: then all must be equal.
        renumbered = data / f"{log.name}.renumbered"
        command = [job, "copy", log.path, renumbered, *globbed, "--renumber"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        invert = ["-i"] if drops else []
        command = [peers.filter, "-c", f"^{chosen[1]}", *invert, log.path, out]
        yield filtering("lcm-logfilter", *command, writes=renumbered)


def warm(out, size):
    """Writes and removes a file, so that no job pays for memory nobody has touched before."""
    with open(out, "wb") as file:
        block = bytes(1 << 20)
        for _ in range((size >> 20) + 64):
            file.write(block)
    out.unlink()


def measure(jobs, rounds, out):
    for job in jobs:
        say(f"memory: {job.task}, {job.log.name}, {job.who}")
        job.run_once(out, watch=True)
    for number in range(rounds):
        for job in jobs:
            say(f"round {number + 1} of {rounds}: {job.task}, {job.log.name}, {job.who}")
            if job.writes:
                warm(out, job.log.bytes)
            job.time(out)


def tables(jobs):
    """The results as Markdown: one table a task and log."""
    for key in dict.fromkeys(job.key for job in jobs):
        group = [job for job in jobs if job.key == key]
        ours = next((job for job in group if job.who == "sluice"), None)
        log = group[0].log
        yield f"\n### {key[0]} – {log.name}, {log.events:,} events, {log.bytes / 1e6:.0f} MB\n"
        yield "| who | wall s | CPU s | MB/s | M events/s | CPU ns/event | peak RSS MiB | anonymous MiB | wall: sluice is | CPU: sluice is |"
        yield "|" + " --- |" * 10
        for job in group:
            wall, cpu = job.wall(), job.cpu()
            cells = [
                job.who,
                f"{wall:.3f} ({min(job.walls):.3f})",
                f"{cpu:.3f} ({min(job.cpus):.3f})",
                f"{log.bytes / wall / 1e6:.0f}",
                f"{log.events / wall / 1e6:.2f}",
                f"{cpu / log.events * 1e9:.1f}",
                f"{job.peak / 1024:.0f}",
                f"{job.anonymous / 1024:.0f}",
                "" if ours in (None, job) else f"{wall / ours.wall():.2f}x",
                "" if ours in (None, job) else f"{cpu / ours.cpu():.2f}x",
            ]
            yield f"| {' | '.join(cells)} |"


# Task, log, peer, and how many times faster Sluice is to be.
RATIOS = [
    ("read", "small", "C liblcm", 6),
    ("read", "dgc", "C liblcm", 3),
    ("read", "small", "Python lcm", 16),
    ("read", "dgc", "Python lcm", 7),
    ("copy", "dgc", "lcm-logfilter", 3),
    ("filter: half the channels", "small", "lcm-logfilter", 14),
]


def verdicts(jobs):
    """The goals, and what of them was reached."""
    found = {(*job.key, job.who): job for job in jobs}
    yield "\n### Goals\n\n| goal | wanted | reached | |\n| --- | --- | --- | --- |"

    def row(goal, wanted, reached, good):
        return f"| {goal} | {wanted} | {reached} | {'yes' if good else '**no**'} |"

    for task, log, who, wanted in RATIOS:
        ours, theirs = found.get((task, log, "sluice")), found.get((task, log, who))
        if ours and theirs:
            ratio, work = theirs.wall() / ours.wall(), theirs.cpu() / ours.cpu()
            reached = f"{ratio:.1f} (CPU {work:.1f})"
            yield row(f"{task}, {log}, times {who}", f">= {wanted}", reached, ratio >= wanted)
    bare, one = found.get(("read", "small", "bare loop")), found.get(("read", "small", "sluice --jobs 1"))
    four = found.get(("read", "small", "sluice --jobs 1, 4 stages"))
    if bare and one and four:
        for who, job in (("1 thread", one), ("2 threads", found[("read", "small", "sluice")])):
            over = (job.cpu() - bare.cpu()) / bare.log.events * 1e9
            yield row(f"CPU over a bare loop, small, {who}", "<= 40 ns/event", f"{over:.1f}", over <= 40)
        stage = (four.cpu() - one.cpu()) / 4 / one.log.events * 1e9
        yield row("CPU of a pass-through stage, small", "<= 30 ns/event", f"{stage:.1f}", stage <= 30)
    for log in ("dgc", "small", "large"):
        copy = found.get(("copy", log, "sluice"))
        if copy:
            mib = copy.peak / 1024
            name = f"peak RSS of copy, {copy.log.name}, {copy.log.bytes / 1e9:.1f} GB"
            yield row(name, "<= 64 MiB", f"{mib:.0f} MiB", mib <= 64)


def share_of_a_core(jobs):
    """How much of a core the jobs with one thread got: little means that the machine had other work."""
    alone = [job for job in jobs if job.who in ("bare loop", "C liblcm", "Python lcm")]
    walls = sum(sum(job.walls) for job in alone)
    return sum(sum(job.cpus) for job in alone) / walls if walls else 1


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5, help="how often everything is run")
    arguments.add_argument("--data", type=Path, default=ROOT / "bench-data", help="where logs are kept")
    shared = Path("/dev/shm")
    arguments.add_argument("--out", type=Path, default=shared if shared.is_dir() else None,
                           help="where outputs go; by default, memory")
    arguments.add_argument("--only", default="", help="only jobs whose task, log or name has this word")
    arguments.add_argument("--large", action="store_true", help="also copies a log of 4 GB, once, for its memory")
    options = arguments.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    out = (options.out or options.data) / "sluice-bench.out"

    programs, peers = build(), Peers()
    for what in peers.missing:
        say(f"MISSING, left out: {what}; README.md says how to get it")
    logs = [made(programs, options.data, name, how) for name, how in LOGS.items()]
    jobs = [job for log in logs for job in jobs_of(log, programs, peers, out, options.data)]
    jobs = [job for job in jobs if options.only in f"{job.task} {job.log.name} {job.who}"]
    # Writing back in the middle of a measurement would be measured.
    os.sync()
    measure(jobs, options.rounds, out)
    lines = [*tables(jobs)]
    if options.large:
        large = made(programs, options.data, "large", ["dgc", "--mb", "4000"])
        disk = options.data / "sluice-bench.out"
        copy = Job("copy", "sluice", large, [programs / "run-job", "copy", large.path, disk],
                   large.carried(), large.path)
        say("memory: copy, large, sluice")
        copy.run_once(disk, watch=True)
        for path in options.data.glob("large.*"):
            path.unlink()
        jobs.append(copy)
    print(f"{time.strftime('%Y-%m-%d')}, {options.rounds} rounds; median (least). liblcm {peers.version}.")
    print(f"Jobs with one thread got {share_of_a_core(jobs):.0%} of a core: what is missing, others had.")
    print("\n".join([*lines, *verdicts(jobs)]))


if __name__ == "__main__":
    main()
