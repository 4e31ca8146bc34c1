"""The goals for Sluice, compared with peers and for memory, and which of them are met."""

import os
from operator import attrgetter, methodcaller
from statistics import median

import jobs_archive
import jobs_cluster
import jobs_datasets
import jobs_decode
import jobs_lcm
import jobs_live
import jobs_mcap
import jobs_points
import jobs_python
import jobs_query
import jobs_report
import jobs_robots
import jobs_typed
import jobs_windows
from jobs_memory import CAP


class Goal:
    """The goal for one job against another: a minimum or maximum multiple of its figure."""

    def __init__(self, text, ours, theirs, figure, *, least=None, most=None):
        self.text, self.ours, self.theirs = text, ours, theirs
        self.figure, self.least, self.most = figure, least, most

    def row(self, found):
        ours, theirs = found.get(self.ours), found.get(self.theirs)
        if not ours or not theirs:
            return None
        mine, other = self.figure(ours), self.figure(theirs)
        if self.least is not None:
            # A speedup: the other's figure divided by ours.
            reached = other / mine
            shown = f"{reached:.3g} (CPU {theirs.cpu() / ours.cpu():.3g})"
            return row(self.text, f">= {self.least}", shown, reached >= self.least)
        reached = mine / other
        return row(self.text, f"<= {self.most}", f"{reached:.3f}", reached <= self.most)


def row(goal, wanted, reached, good):
    return f"| {goal} | {wanted} | {reached} | {'yes' if good else '**no**'} |"


WALL, CPU = methodcaller("wall"), methodcaller("cpu")
SIZE, ANONYMOUS = attrgetter("size"), attrgetter("anonymous")


def per_byte(job):
    return job.wall() / job.log.bytes


def goals():
    """The goals against peers, job by job. A job's key is task, log and program."""

    def times(task, log, who, least, ours="sluice"):
        name = f"{task}, {log}" if ours == "sluice" else f"{task}, {log}, {ours},"
        return Goal(f"{name} times {who}", (task, log, ours), (task, log, who), WALL, least=least)

    yield times("read", "small", "C liblcm", 6)
    yield times("read", "dgc", "C liblcm", 6)
    yield times("read", "small", "Python lcm", 16)
    yield times("read", "dgc", "Python lcm", 7)
    yield times("copy", "dgc", "lcm-logfilter", 3)
    yield times("filter: half the channels", "small", "lcm-logfilter", 14)

    yield Goal(f"CPU of copy, small, in parts of {jobs_lcm.RUNS}", ("copy", "small", "sluice"),
               ("copy", "small", jobs_lcm.RUNS), CPU, most=1.2)
    for log in jobs_robots.PLUGINS:
        one = "sluice --jobs 1"
        text = f"bytes a second of read, {log}, 1 thread, in parts of read, dgc"
        yield Goal(text, ("read", log, one), ("read", "dgc", one), per_byte, least=0.6)
    for log in jobs_robots.SCANS:
        yield times("decode", log, jobs_robots.COPY, 0.5)
    for log in jobs_windows.LOGS:
        yield Goal(f"CPU of {jobs_windows.TASK}, {log}, in parts of a pass over its headers",
                   (jobs_windows.TASK, log, "sluice"),
                   (jobs_windows.TASK, log, jobs_windows.HEADERS), CPU, most=1.5)
    for task in (jobs_points.ALL, jobs_points.SEEN):
        yield times(task, jobs_points.LOG, jobs_points.C, 0.9)
    for of in jobs_decode.TYPES:
        yield times("decode", of, jobs_decode.PYTHON, 150 if of == "pose" else 60)
    for of, least in (("pose", 0.6), ("imu", 0.6), ("laser", 0.95)):
        yield times("decode", of, jobs_decode.HAND, least)
    yield times(jobs_typed.TASK, "car", jobs_typed.PANDAS, 6)

    zstd, arrow, pyarrow = "parquet zstd:3", "Rust ArrowWriter", "Python lcm + pyarrow"
    comes = "sluice as it comes"
    yield times(zstd, "dgc", pyarrow, 3.3)
    yield times(zstd, "dgc", pyarrow, 3.8, ours=comes)
    yield times(zstd, "dgc", "Python lcm + pandas", 4)
    yield times(zstd, "small", pyarrow, 8)
    yield times("parquet none", "dgc", pyarrow, 6.5)
    yield times("parquet snappy", "dgc", pyarrow, 3.5)

    def share(what, task, log, who, figure, most, ours="sluice"):
        text = f"{what} of {task}, {log}" + ("" if ours == "sluice"
                                             else f", {ours}") + f", in parts of {who}'s"
        return Goal(text, (task, log, ours), (task, log, who), figure, most=most)

    for log in ("dgc", "small"):
        yield share("size", zstd, log, pyarrow, SIZE, 1.01)
        yield share("CPU", zstd, log, arrow, CPU, 1)
        yield share("wall", zstd, log, arrow, WALL, 0.5)
        yield share("size", zstd, log, pyarrow, SIZE, 1, ours=comes)
        yield share("size", zstd, log, "sluice", SIZE, 1, ours=comes)
        yield share("CPU", zstd, log, "sluice", CPU, 1, ours=comes)
    for log, who, most in (("dgc", "sluice", 0.75), ("dgc", comes, 0.75), ("small", "sluice", 0.9)):
        program = (jobs_archive.TASK, log, jobs_archive.PEER)
        text = f"wall of a table of {log}, zstd:3, {who}, in parts of an archive by zstd -3 -T2"
        yield Goal(text, (zstd, log, who), program, WALL, most=most)
    for log, most in (("dgc", 0.6), ("small", 0.8)):
        yield share("wall", jobs_archive.TASK, log, jobs_archive.PEER, WALL, most)
    for log in ("dgc", "small"):
        yield share("size", jobs_archive.TASK, log, jobs_archive.PEER, SIZE, 1)
        yield share("wall", "restore", log, "zstd -d, its own file", WALL, 0.8)
    text = f"wall of {jobs_report.TASK}, {jobs_report.LOG}, in parts of {jobs_report.DECODING}"
    yield Goal(text, (jobs_report.TASK, jobs_report.LOG, "sluice"),
               (jobs_report.TASK, jobs_report.LOG, jobs_report.DECODING), WALL, most=2.5)
    for what, figure in (("wall", WALL), ("CPU", CPU)):
        for who in (jobs_cluster.ONE, jobs_cluster.TWO, *jobs_cluster.STANDING):
            most = 1.05 if figure is WALL else 1.1
            yield share(what, jobs_cluster.TASK, "drives", "sluice", figure, most, ours=who)
    for task in (jobs_query.COUNT, jobs_query.WINDOW, jobs_query.FIELD):
        yield times(task, "dgc", jobs_query.PYTHON, 5)
        yield share("wall", task, "dgc", jobs_query.INFO, WALL, 1.2)
    for of in jobs_decode.TYPES:
        frame = jobs_python.FRAME, of
        yield Goal(f"wall of {of} {frame[0]}, in parts of decoding {jobs_python.KEPT}",
                   (*frame, "sluice"), (*frame, jobs_python.KEPT), WALL, most=1.1)
        yield times(*frame, jobs_python.CLASSES, 60)
    yield times(jobs_datasets.TASK, jobs_datasets.LOG, jobs_datasets.PANDAS, 20)
    for log in (jobs_datasets.DRIVE, jobs_datasets.FEW):
        yield times(jobs_datasets.SIGNALS, log, jobs_datasets.LEROBOT, 20)
    yield times(jobs_datasets.IMAGES, jobs_datasets.DRIVE, jobs_datasets.LEROBOT, 5)
    yield times(jobs_mcap.READ, "drive", jobs_mcap.CRATE, 1.8)
    yield times(jobs_mcap.WRITE, "drive-plain", jobs_mcap.CRATE, 1.7)
    for who in (jobs_mcap.ROS2, jobs_mcap.ROSBAGS):
        yield times(jobs_mcap.TABLES, "ros2", who, 30)
    for size in jobs_live.FLAT_OUT:
        yield times(jobs_live.PUBLISH, f"{size} B", jobs_live.C, 1)
        yield times(jobs_live.PUBLISH, f"{size} B", jobs_live.PLAYER, 1)
    for task in ("tables by channel", "one table", "archive"):
        ours, theirs = (task, "large", "sluice"), (task, "dgc", "sluice")
        yield Goal(f"anonymous memory of {task}, 4 GB in parts of 1 GB", ours, theirs, ANONYMOUS,
                   most=1.25)


# The maximum anonymous memory of tasks of these groups, in MiB, for any log.
CAPS = {"one table": 256, "archive": 64, "tables by channel": 256,
        f"tables by channel, --memory {CAP}": 128, jobs_datasets.CAPPED: jobs_datasets.CAP,
        # 200 MB.
        jobs_points.CAPPED: 190}


def verdicts(jobs):
    """The goals, and whether they are met."""
    found = {(job.task, job.log.name, job.who): job for job in jobs}
    rows = [reached for goal in goals() if (reached := goal.row(found))]
    rows += [*overhead(found), *memory(jobs, found), *typed(found), *reports(found), *live(found),
             *queries(found), *python(found)]
    if rows:
        yield "\n## Goals\n\n| goal | wanted | reached | |\n| --- | --- | --- | --- |"
        yield from rows


def memory(jobs, found):
    """The memory goals, for any log."""
    for log in ("dgc", "small", "large"):
        copy = found.get(("copy", log, "sluice"))
        if copy:
            mib = copy.peak / 1024
            name = f"peak RSS of copy, {copy.log.name}, {copy.log.bytes / 1e9:.1f} GB"
            yield row(name, "<= 64 MiB", f"{mib:.0f} MiB", mib <= 64)
    for job in jobs:
        if job.task == jobs_mcap.TABLES and job.who == "sluice":
            mib = job.peak / 1024
            name = f"peak RSS of {job.task} with --memory {jobs_mcap.CAP}, {job.log.name}"
            yield row(name, "<= 256 MiB", f"{mib:.0f} MiB", mib <= 256)
        if job.group in ("memory", jobs_points.GROUP) and job.task in CAPS:
            mib, cap = job.anonymous / 1024, CAPS[job.task]
            name = f"anonymous memory of {job.task}, {job.log.name}, {job.log.bytes / 1e9:.1f} GB"
            yield row(name, f"<= {cap} MiB", f"{mib:.0f} MiB", mib <= cap)


def overhead(found):
    """The overhead of the engine for small events."""
    bare, one = found.get(("read", "small", "bare loop")), found.get(
        ("read", "small", "sluice --jobs 1"))
    four, all_cores = found.get(("read", "small", "sluice --jobs 1, 4 stages")), found.get(
        ("read", "small", "sluice"))
    if not (bare and one and four and all_cores):
        return
    for who, job in (("1 thread", one), ("2 threads", all_cores)):
        over = (job.cpu() - bare.cpu()) / bare.log.events * 1e9
        yield row(f"CPU over a bare loop, small, {who}", "<= 40 ns/event", f"{over:.1f}",
                  over <= 40)
    stage = (four.cpu() - one.cpu()) / 4 / one.log.events * 1e9
    yield row("CPU of a pass-through stage, small", "<= 30 ns/event", f"{stage:.1f}", stage <= 30)


def python(found):
    """The goals of the Python package for events, a stage and its import."""
    events = found.get((jobs_python.EVENTS, "small", "sluice"))
    if events:
        rate = events.log.events / events.wall() / 1e6
        yield row("events with payloads in Python, small", ">= 3 M/s", f"{rate:.2f}", rate >= 3)

    def over(task, log, without):
        ours, plain = found.get((task, log, "sluice")), found.get((task, log, without))
        return ours.wall() - plain.wall() if ours and plain else None

    stage = over(jobs_python.STAGE, "small", jobs_python.WITHOUT)
    if stage is not None:
        each = stage / found[jobs_python.STAGE, "small", "sluice"].log.events * 1e6
        yield row("wall of a stage in Python, small", "<= 1 us/event", f"{each:.3f}", each <= 1)
    start = over(jobs_python.IMPORT, "pose", jobs_python.PLAIN)
    if start is not None:
        yield row("import of the Python package", "< 50 ms", f"{start * 1e3:.1f}", start < 0.05)


def typed(found):
    """The goals for typed tables: their memory, and that no channel keeps cores idle."""
    job = found.get((jobs_typed.TASK, "car", "sluice"))
    if not job:
        return
    if job.walls:
        busy, least = job.cpu() / job.wall(), 0.9 * os.cpu_count()
        yield row(f"cores busy with {jobs_typed.TASK}, car", f">= {least:.1f}", f"{busy:.2f}",
                  busy >= least)
    mib = job.anonymous / 1024
    yield row(f"anonymous memory of {jobs_typed.TASK}, car", "<= 384 MiB", f"{mib:.0f} MiB",
              mib <= 384)


def queries(found):
    """The goal for queries whose columns are cached."""
    for task in jobs_query.CACHED:
        job = found.get((task, "dgc", jobs_query.AGAIN))
        if job:
            yield row(f"wall of {task}, dgc, {jobs_query.AGAIN}", "<= 50 ms",
                      f"{job.wall() * 1e3:.0f} ms", job.wall() <= 0.05)


def reports(found):
    """The goal for the memory of reports."""
    job = found.get((jobs_report.TASK, jobs_report.LOG, "sluice"))
    if job:
        mib, cap = job.anonymous / 1024, jobs_report.CAP
        text = f"anonymous memory of {jobs_report.TASK}, {jobs_report.LOG}"
        yield row(text, f"<= {cap} MiB", f"{mib:.0f} MiB", mib <= cap)


def live(found):
    """The goals for receiving over UDP. Where nothing may be lost, the worst round counts."""
    log = f"{jobs_live.PACED} B"
    ours, theirs = (found.get((jobs_live.RECEIVE, log, who))
                    for who in (jobs_live.RECORD, jobs_live.C))
    if ours and theirs:
        share, other = median(ours.shares()), median(theirs.shares())
        text = f"{jobs_live.RECEIVE}, {log}, in parts of what was sent"
        yield row(text, ">= 88 %", f"{share:.1%}", share >= 0.88)
        # More than half cannot be doubled.
        if other < 0.5:
            yield row(f"{text}, times {jobs_live.C}", ">= 2", f"{share / other:.2f}",
                      share >= 2 * other)
    larger = f"{jobs_live.RECORD}, {jobs_live.LARGER}"
    c = f"{jobs_live.C}, {jobs_live.LARGER}"
    whole = [
        (jobs_live.BURSTS, f"{jobs_live.BURST_BYTES} B", larger, c),
        (jobs_live.PACED_IN, log, larger, c),
        (jobs_live.PACED_OUT, log, "sluice", jobs_live.C),
    ]
    for task, log, who, peer in whole:
        ours, theirs = found.get((task, log, who)), found.get((task, log, peer))
        if ours and theirs:
            lost, rate = max(ours.lost()), ours.log.events / ours.wall()
            # Skipped on a machine that cannot keep the pace.
            kept = rate >= 0.95 * jobs_live.PACES.get(task, 0)
            text = f"lost of {task}, {log}, {who}, of {ours.log.events:,}"
            shown = f"{lost}, at {rate / 1e3:.1f} k/s ({peer}: {max(theirs.lost())})"
            yield row(text, "0", shown, kept and lost == 0)
