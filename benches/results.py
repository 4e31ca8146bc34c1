"""The results as Markdown: one table per task and log. The goals are in `goals`."""

# Where the size of the output matters.
SIZED = ("parquet", "tables", "typed", "datasets", "archive", "cluster", "mcap")
TITLES = {
    "lcm": "LCM logs",
    "robots": "Logs of other robots",
    "windows": "Windows of time",
    "decode": "Messages to columns and back, in memory",
    "points": "Packets of a Velodyne to points, in memory",
    "report": "Reports",
    "parquet": "One Parquet table",
    "tables": "A Parquet table for each channel",
    "typed": "A typed table for each channel",
    "datasets": "Datasets for learning",
    "archive": "Archives",
    "memory": "Memory",
    "cluster": "Many logs, by one process and by a cluster on one machine",
    "mcap": "MCAP files",
    "query": "Questions about a log",
    "python": "The Python package",
}


def sections(jobs):
    """All figures, group by group."""
    for group, title in TITLES.items():
        some = [job for job in jobs if job.group == group]
        if some:
            yield f"\n### {title}"
            yield from memory_table(some) if group == "memory" else tables(some)


def tables(jobs):
    """One table per task and log."""
    for key in dict.fromkeys(job.key for job in jobs):
        group = [job for job in jobs if job.key == key]
        ours = next((job for job in group if job.who == "sluice"), None)
        sized, log = group[0].group in SIZED, group[0].log
        yield f"\n#### {key[1]} – {log.name}, {log.events:,} events, {log.bytes / 1e6:.0f} MB\n"
        columns = ["who", "wall s", "CPU s", "MB/s", "M events/s", "CPU ns/event", "peak RSS MiB",
                   "anonymous MiB"]
        columns += ["out MB"] if sized else []
        columns += ["wall: sluice is", "CPU: sluice is"]
        yield f"| {' | '.join(columns)} |"
        yield "|" + " --- |" * len(columns)
        for job in group:
            wall, cpu = job.wall(), job.cpu()
            # The rows that such a job holds in memory are not representative.
            mib = ["", ""] if job.times_itself else [f"{job.peak / 1024:.0f}",
                                                     f"{job.anonymous / 1024:.0f}"]
            cells = [
                job.who,
                f"{wall:.3f} ({min(job.walls):.3f})",
                f"{cpu:.3f} ({min(job.cpus):.3f})",
                f"{log.bytes / wall / 1e6:.0f}",
                f"{log.events / wall / 1e6:.2f}",
                f"{cpu / log.events * 1e9:.1f}",
                *mib,
                *([f"{job.size / 1e6:.1f}"] if sized else []),
                "" if ours in (None, job) else f"{wall / ours.wall():.2f}x",
                "" if ours in (None, job) else f"{cpu / ours.cpu():.2f}x",
            ]
            yield f"| {' | '.join(cells)} |"


def memory_table(jobs):
    yield "\n| job | log | channels | GB | peak RSS MiB | anonymous MiB |"
    yield "|" + " --- |" * 6
    for job in jobs:
        log = job.log
        mib = f"{job.peak / 1024:.0f} | {job.anonymous / 1024:.0f}"
        yield f"| {job.task} | {log.name} | {len(log.channels)} | {log.bytes / 1e9:.1f} | {mib} |"


def share_of_a_core(jobs):
    """How much of a core the jobs with one thread got, if any ran."""
    alone = [job for job in jobs
             if job.who in ("bare loop", "C liblcm", "Python lcm", "Rust ArrowWriter")]
    walls = sum(sum(job.walls) for job in alone)
    return sum(sum(job.cpus) for job in alone) / walls if walls else None
