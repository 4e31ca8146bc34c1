#!/usr/bin/env python3
"""Compares Sluice with minimal programs and with common tools, and prints the results as Markdown.

    benches/run.py [--rounds 5] [--data FOLDER] [--out FOLDER] [--only WORD]… [--large] [--real FOLDER]

Generates missing logs, builds, runs every job and every peer in turn, round by round, and checks
what each printed and wrote. Missing peers are skipped with a message. Needs Linux.
"""

import argparse
import time
from pathlib import Path

import goals
import jobs_archive
import jobs_cluster
import jobs_datasets
import jobs_decode
import jobs_lcm
import jobs_live
import jobs_mcap
import jobs_memory
import jobs_points
import jobs_python
import jobs_query
import jobs_real
import jobs_report
import jobs_robots
import jobs_tables
import jobs_typed
import jobs_windows
import results
from harness import Prepared, fail, measure, remove, say
from logs import Drives, MadeUp
from pipelines import Sluice
from programs import HERE, ROOT, Peers, add_options, built, package


class Bench:
    """The programs, peers, logs and the output folder of a session."""

    def __init__(self, options):
        self.programs, program = built(options.build, options.full)
        self.builds = options.build
        self.peers = Peers()
        self.data = options.data.resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        self.scratch = (options.out or self.data).resolve() / "sluice-bench.out"
        self.sluice = Sluice(options.program or program, self.data / "pipelines")
        self.percent, self.logs, self.files = options.percent, {}, {}
        self.types = HERE / "types" / "bench.lcm"

    def log(self, name):
        if name not in self.logs:
            self.logs[name] = MadeUp(name, self.data, self.programs, self.percent)
        return self.logs[name]

    def drives(self):
        if "drives" not in self.logs:
            self.logs["drives"] = Drives(self.data, self.programs, self.percent)
        return self.logs["drives"]

    def out(self, suffix):
        """The output path of a job."""
        return self.scratch.with_suffix(suffix or ".tables")

    def has(self, verb):
        """Whether the program supports this; prints a message if not."""
        is_there = self.sluice.program.exists() and self.sluice.has(verb)
        if not is_there:
            say(f"MISSING, left out: {self.sluice.program} with {verb}; --full builds it")
        return is_there

    def package(self):
        """The folder that has the Python package; None, with a message, if it is not there."""
        found = package(self.builds)
        if found is None:
            say("MISSING, left out: the Python package")
        return found

    def prepared(self, path, *command):
        """The file that a command writes, shared by all jobs that need it."""
        return self.files.setdefault(path, Prepared(path, *command))

    def classes(self):
        """The folder of the Python classes that lcm-gen makes of all types."""
        folder, of_the_car = self.data / "lcmtypes", sorted(
            (ROOT / "plugins" / "dgc" / "types").glob("*.lcm"))
        return self.prepared(folder, self.peers.lcm_gen, "-p", "--ppath", folder, self.types,
                             *of_the_car)

    def remove(self):
        """Removes files that are made anew each time or are too large to keep."""
        for path in self.files:
            remove(path)
        for name in {"large", "large-vel"} & self.logs.keys():
            self.logs[name].remove()


def jobs_of(bench, options):
    """All jobs whose peers are installed."""
    yield from jobs_lcm.jobs(bench)
    yield from jobs_decode.jobs(bench)
    yield from jobs_robots.jobs(bench)
    yield from jobs_windows.jobs(bench)
    yield from jobs_points.jobs(bench)
    yield from jobs_report.jobs(bench)
    yield from jobs_mcap.jobs(bench)
    yield from jobs_python.jobs(bench)
    if options.large:
        yield from jobs_robots.long_jobs(bench)
    tables, archives = bench.peers.has("pyarrow"), bench.peers.zstd
    if tables:
        yield from jobs_tables.jobs(bench)
        yield from jobs_tables.by_channel(bench)
    if tables and bench.peers.lcm_gen and bench.peers.has("lcm"):
        yield from jobs_typed.jobs(bench)
        yield from jobs_datasets.jobs(bench)
        yield from jobs_datasets.lerobot_jobs(bench)
        yield from jobs_datasets.memory_jobs(bench)
    if archives:
        yield from jobs_archive.jobs(bench)
    if tables:
        yield from jobs_memory.jobs(bench)
    if tables and options.large:
        yield from jobs_memory.long_jobs(bench)
    if tables and bench.has("cluster"):
        yield from jobs_cluster.jobs(bench)
    if bench.peers.lcm_gen and bench.peers.has("lcm") and bench.has("query"):
        yield from jobs_query.jobs(bench)
    if jobs_live.possible(bench.peers):
        yield from jobs_live.jobs(bench)
    if tables and options.real:
        yield from jobs_real.jobs(bench, options.real)


def chosen(jobs, words):
    """The jobs that a word names. The name of a group selects exactly that group."""
    groups = {job.group for job in jobs}

    def named(job, word):
        return job.group == word if word in groups else job.named(word)

    return [job for job in jobs if any(named(job, word) for word in words)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5,
                        help="how often everything is run; slow jobs at most thrice")
    add_options(parser)
    parser.add_argument("--only", action="append", default=[], metavar="WORD",
                        help="only this group (lcm, decode, robots, windows, points, report, mcap, "
                             "python, parquet, tables, typed, datasets, archive, memory, cluster, "
                             "query, live, real), or jobs whose task, log or name has this word; "
                             "may be repeated")
    parser.add_argument("--large", action="store_true",
                        help="also a log of 4 GB, once, for the memory it takes")
    parser.add_argument("--real", type=Path, metavar="FOLDER",
                        help="also the LCM logs in this folder, as tables")
    parser.add_argument("--percent", type=int, default=100,
                        help="length of the logs; goals are for whole ones")
    parser.add_argument("--full", action="store_true",
                        help="build the full program, which `cluster` and `query` need; takes twenty minutes at first")
    parser.add_argument("--program", type=Path,
                        help="measure this sluice, and not the one that is built")
    return parser.parse_args()


def main():
    options = arguments()
    bench = Bench(options)
    for what in bench.peers.missing:
        say(f"MISSING, left out: {what}; README.md says how to get it")
    jobs = [*jobs_of(bench, options)]
    if options.only:
        jobs = chosen(jobs, options.only)
    if not jobs:
        fail("no job is left")
    bench.sluice.check(jobs)
    real = [job for job in jobs if job.group == "real"]
    live = [job for job in jobs if job.group == jobs_live.GROUP]
    jobs = [job for job in jobs if job.group not in ("real", jobs_live.GROUP)]
    measure(jobs, options.rounds, bench.scratch)
    jobs_live.measure(live, options.rounds, bench.scratch)
    jobs_real.measure(real, bench.scratch)
    lines = [*goals.verdicts([*jobs, *live]), "\n## All figures", *results.sections(jobs)]
    lines += [*jobs_live.section(live), *jobs_real.section(real)]
    versions = ", ".join(f"{name} {version}" for name, version in bench.peers.versions.items())
    print(f"{time.strftime('%Y-%m-%d')}, {options.rounds} rounds; median (least). {versions}.")
    share = results.share_of_a_core(jobs)
    if share is not None:
        print(f"Jobs with one thread got {share:.0%} of a core: what is missing, others had.")
    print("\n".join(lines))
    bench.remove()


if __name__ == "__main__":
    main()
