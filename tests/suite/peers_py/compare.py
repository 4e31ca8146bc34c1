"""Compares the output of `sluice cat --json --payload` with the report of the writer of the log.

    compare.py vel|orca EXPECTED.json EVENTS.jsonl STEM

Fails at the first difference. STEM is the name of the log without its extension. EXPECTED.json is
written by vel_writer.py or orca_writer.py.
"""

import base64
import json
import struct
import sys


def same(path, wanted, found):
    if wanted != found:
        sys.exit(f"{path}: {wanted!r} was written, {found!r} was read")


def a_float(path, wanted, found):
    """A float with its bits; JSON does not distinguish NaNs."""
    if isinstance(wanted["value"], str):
        return same(path, wanted["value"], found)
    form = {8: ">f", 16: ">d"}[len(wanted["bits"])]
    return same(path, wanted["bits"], struct.pack(form, found).hex())


def value(path, wanted, found):
    """Compares a value of a writer with our JSON."""
    if isinstance(wanted, dict) and set(wanted) == {"value", "bits"}:
        a_float(path, wanted, found)
    elif isinstance(wanted, dict) and set(wanted) == {"hex"}:
        same(path, wanted["hex"], base64.b64decode(found).hex())
    elif isinstance(wanted, dict) and set(wanted) == {"bytes"}:
        same(path, wanted["bytes"], found.encode().decode("unicode_escape").encode("latin-1").hex())
    elif isinstance(wanted, dict):
        members(path, wanted, found)
    elif isinstance(wanted, list):
        same(f"{path}, length", len(wanted), len(found))
        for n, (one, other) in enumerate(zip(wanted, found)):
            value(f"{path}[{n}]", one, other)
    else:
        same(path, wanted, found)


def members(path, wanted, found):
    """Compares the members of an object, in any order. Ours has absent members as null."""
    found = {name: member for name, member in found.items() if name not in ("sliced", "order", "references")}
    for name, member in wanted.items():
        if name == "class":
            # A reference to a single possible class does not name it.
            last = member.rpartition("::")[2]
            same(f"{path}.class", last, found.pop("class", last).rpartition("::")[2])
        elif name != "sliced":
            if name not in found:
                sys.exit(f"{path}: `{name}` was written, {sorted(found)} was read")
            value(f"{path}.{name}", member, found.pop(name))
    same(f"{path}, what else is there", {}, {n: m for n, m in found.items() if m is not None})


def vel(expected, events, stem):
    written = [m for m in expected["messages"] if not m["deleted"] and m["timestamp_ns"] is not None]
    same("number of messages", len(written), len(events))
    decoded = 0
    for message, event in zip(written, events):
        path = f"{message['type']} at byte {message['offset']}"
        same(f"{path}, time", message["timestamp_ns"], event["timestamp_ns"])
        same(f"{path}, number", message["offset"], event["sequence"])
        same(f"{path}, payload", message["payload"], base64.b64decode(event["payload"]).hex())
        known = {"ImageM", "IMUStateM", "LaserRange2DDataM", "LaserRange2DConfigM"}
        named = message["type"] if message["type"] in known else message["type_hex"]
        same(f"{path}, channel", named, event["channel"])
        fields = message["fields"]
        if not fields:
            same(f"{path}, fields", False, "fields" in event)
            continue
        sensor = fields.get("sensor_name", stem)
        if isinstance(sensor, str):
            same(f"{path}, source", sensor, event["source"])
        fields = {name: member for name, member in fields.items() if name != "compressed_stored"}
        if "sensor_name" in fields:
            fields["sensor"] = fields.pop("sensor_name")
        for vector in {"quaternion", "acceleration", "position"} & fields.keys():
            fields[vector] = list(fields[vector].values())
        if "bytes" in fields:
            fields["image"] = {"hex": fields.pop("bytes")}
        if message["known"] == "prefix":
            fields["tail"] = {"hex": message["tail"]}
        if message["known"] == "full":
            event["fields"].setdefault("tail", "")
            same(f"{path}, tail", "", event["fields"].pop("tail"))
        value(path, fields, event["fields"])
        decoded += 1
    return decoded


def orca(expected, events, _):
    # The first line of the recorder's own file describes the pictures of a camera.
    # Each further line is an event in addition to the picture.
    of_files = (".config", ".info")
    events = [e for e in events if not (e["channel"].endswith(of_files) and e["metadata"]["orca.encoding"] == "jpeg")]
    configuration = [
        (file, number, record)
        for file in expected["files"]
        if file["encoding"] in ("ice", "ascii") and file["bytes"] is not None
        for number, record in enumerate(r for r in file["records"] if r["config"])
    ]
    first = events[: len(configuration)]
    same("configuration records", [True] * len(configuration), [e["channel"].endswith(".config") for e in first])
    decoded = 0
    for (file, _, record), event in zip(configuration, first):
        path = f"configuration of {file['file']}"
        same(f"{path}, time", expected["first_time_ns"], event["timestamp_ns"])
        same(f"{path}, source", file["stem"], event["source"])
        decoded += an_object(path, record, event)
    lines = [line for line in expected["lines"] if line["outcome"] == "event"]
    same("number of events", len(lines), len(events) - len(configuration))
    for line, event in zip(lines, events[len(configuration) :]):
        path = f"line {line['line']}"
        same(f"{path}, time", line["timestamp_ns"], event["timestamp_ns"])
        same(f"{path}, source", line["stem"], event["source"])
        same(f"{path}, channel", line["channel"], event["channel"])
        same(f"{path}, number", line["index"], event["sequence"])
        decoded += an_object(path, line, event)
    return decoded


def an_object(path, record, event):
    same(f"{path}, record", record["payload"], base64.b64decode(event["payload"]).hex())
    if record["fields"] is None or "fields" not in event:
        return 0
    members(f"{path}, {record['type']}", record["fields"], event["fields"])
    return 1


def main():
    kind, expected, events, stem = sys.argv[1:]
    with open(expected, encoding="utf-8") as file:
        expected = json.load(file)
    with open(events, encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    print({"vel": vel, "orca": orca}[kind](expected, events, stem), "of", len(events), "decoded")


main()
