"""Queries on a log: in SQL on the log, with DuckDB on its tables, and with a Python script."""

import csv
import io
import subprocess

from harness import Job
from jobs_typed import to_tables

GROUP = "query"
COUNT, WINDOW, FIELD = "count by channel", "a window of one channel", "an aggregate of a field"
DUCKDB, PYTHON = "DuckDB, on tables", "Python lcm"
# The same query by another process, once its columns are cached, and the pass that counts events.
AGAIN, INFO = "sluice, the second time", "sluice info"
# The names of the queries for scripts.
WORDS = {COUNT: "count", WINDOW: "window", FIELD: "field"}
# What reads a whole table, and so fills the cache.
CACHED = (COUNT, FIELD)
ROUNDS = 3
# The start of the generator's logs, in seconds since 1970, and the length of this one.
BEGIN, SECONDS = 1_194_098_400, 196


def jobs(bench):
    log = bench.log("dgc")
    tables, classes = tables_of(bench, log), bench.classes()
    begin, end = window_of(bench.percent)
    yield converting(bench, log)
    for task, query in queries(begin, end).items():
        script = bench.peers.script("query_lcm.py", log, WORDS[task], begin, end, classes)
        path = bench.data / f"{log.name}.{WORDS[task]}.csv"
        wanted = bench.prepared(path, "/bin/sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh",
                                path, *script)

        asked = bench.sluice.query(query["log"], f"drive={log}", ["mit-dgc", bench.types])
        yield asking(log, task, "sluice", asked, wanted, classes)
        if task in CACHED:
            cache = bench.data / f"{log.name}.{WORDS[task]}.cache"
            asked = bench.sluice.query(query["log"], f"drive={log}", ["mit-dgc", bench.types],
                                       cache)
            yield asking(log, task, AGAIN, asked, wanted, classes)
        yield Job(GROUP, task, INFO, log, bench.sluice.info(log), rounds=ROUNDS)
        if bench.peers.has("duckdb"):
            sql = query["tables"].replace("TABLES", str(tables))
            asked = bench.peers.script("query_duckdb.py", sql)
            yield asking(log, task, DUCKDB, asked, wanted, classes, tables)
        yield asking(log, task, PYTHON, script, wanted, classes)


def asking(log, task, who, command, wanted, classes, *needs):
    return Job(GROUP, task, who, log, command, prints=wanted.path.read_text, reads=as_numbers,
               needs=[classes, wanted, *needs], rounds=ROUNDS)


def queries(begin, end):
    """Each query as SQL on a log, and on the tables made from it."""
    pose = "read_parquet('TABLES/channel=POSE/*.parquet')"
    every = "read_parquet('TABLES/**/*.parquet', hive_partitioning = true)"
    count = "select channel, count(*) as events from {} group by channel order by channel"
    window = (
        "select count(*) as events, min(sequence) as first, max(sequence) as last from {} where {}"
              "timestamp >= {} and timestamp < {}")
    field = "select count(*) as events, min(vel[1]) as low, max(vel[1]) as high, avg(vel[1]) as mean from {}"
    in_log = [f"to_timestamp_micros({time})" for time in (begin, end)]
    in_tables = [f"make_timestamptz({time})" for time in (begin, end)]
    return {
        COUNT: {"log": count.format("drive"), "tables": count.format(every)},
        WINDOW: {"log": window.format("drive", "channel = 'POSE' and ", *in_log),
                 "tables": window.format(pose, "", *in_tables)},
        FIELD: {"log": field.format('drive."POSE"'), "tables": field.format(pose)},
    }


def window_of(percent):
    """A twentieth of the log, from its middle on, in microseconds."""
    seconds = SECONDS * percent / 100
    begin = BEGIN + seconds / 2
    return int(begin * 1e6), int((begin + seconds / 20) * 1e6)


def tables_of(bench, log):
    """The tables that DuckDB queries; `converting` measures their cost."""
    path = bench.data / f"{log.name}.query-tables"
    return bench.prepared(path,
                          *to_tables(bench, f"query-to-keep-{log.name}", log, path, "--overwrite"))


def converting(bench, log):
    """The conversion that DuckDB needs once."""
    out = bench.out("")
    command = to_tables(bench, f"query-tables-{log.name}", log, out)
    return Job(GROUP, "to tables, once", "sluice", log, command, out=out,
               check=counts_of(bench, log), rounds=ROUNDS)


def counts_of(bench, log):
    """Tables with one row per event of the log, by channel."""
    if not bench.peers.has("duckdb"):
        return None
    sql = queries(0, 0)[COUNT]["tables"]
    wanted = sorted((channel, str(events)) for channel, (events, _) in log.channels.items())

    def check(out):
        command = [str(word) for word in bench.peers.script("query_duckdb.py",
                                                            sql.replace("TABLES", str(out)))]
        counted = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return counted.returncode == 0 and sorted(
            map(tuple, csv.reader(io.StringIO(counted.stdout)))) == sorted(
            [("channel", "events"), *wanted])

    return check


def as_numbers(text):
    """The rows of CSV, with numbers rounded so that sums in any order agree."""
    return [[plain(cell) for cell in row] for row in csv.reader(io.StringIO(text))]


def plain(cell):
    try:
        return f"{float(cell):.9g}"
    except ValueError:
        return cell
