"""Answers a query on a log like a typical Python script: reads the whole log. Prints CSV.

    query_lcm.py LOG count|window|field BEGIN END FOLDER

BEGIN and END are microseconds; FOLDER has the classes that lcm-gen made.
"""

import csv
import importlib
import sys
from collections import Counter

import lcm


def count(log):
    events = Counter(event.channel for event in log)
    return ("channel", "events"), sorted(events.items())


def window(log, begin, end):
    numbers = [event.eventnum for event in log if event.channel == "POSE"
               and begin <= event.timestamp < end]
    return ("events", "first", "last"), [(len(numbers), min(numbers), max(numbers))]


def field(log, folder):
    sys.path.insert(0, folder)
    decode = importlib.import_module("lcmtypes.pose_t").pose_t.decode
    values = [decode(event.data).vel[0] for event in log if event.channel == "POSE"]
    row = len(values), min(values), max(values), sum(values) / len(values)
    return ("events", "low", "high", "mean"), [row]


def main():
    path, what, begin, end, folder = sys.argv[1:]
    log = lcm.EventLog(path)
    answers = {"count": lambda: count(log), "window": lambda: window(log, int(begin), int(end)),
               "field": lambda: field(log, folder)}
    names, rows = answers[what]()
    writer = csv.writer(sys.stdout)
    writer.writerow(names)
    writer.writerows(rows)


if __name__ == "__main__":
    main()
