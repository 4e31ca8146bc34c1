"""Writes the SQLite bags of the cases in `testdata`: `make_db3.py FOLDER`. Pages are as short as
they can be, so that few messages have branches, leaves and long rows."""

import sqlite3
import struct
import sys
from pathlib import Path

PAGE = 512
T0 = 1_700_000_000_000_000_000
QOS = "- history: 3\n  depth: 0\n"
STRING = "string data\n"
PIPELINE = '[sources.log]\nplugin = "ros2-db3"\npath = "log.db3"\n'
# As the versions of the storage make them.
TOPICS = "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL," \
         "serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL{hash})"
HASH = ",type_description_hash TEXT NOT NULL"
MESSAGES = "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL," \
           "timestamp INTEGER NOT NULL, data BLOB NOT NULL)"
# As another program may make it: the data of long messages is before their other columns.
OTHER_MESSAGES = 'CREATE TABLE "Messages" (data BLOB, [timestamp] INTEGER, `Topic_ID` INTEGER,' \
                 ' id INTEGER PRIMARY KEY)'
DEFINITIONS = "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY,topic_type TEXT NOT NULL," \
              "encoding TEXT NOT NULL,encoded_message_definition TEXT NOT NULL{hash})"


def string(text):
    """A message of `std_msgs/msg/String` in CDR."""
    data = text.encode() + b"\0"
    return b"\0\1\0\0" + struct.pack("<I", len(data)) + data


def write(path, messages, declares=True, statement=MESSAGES):
    """A bag with some messages. Of one with declarations, a message in 20 is long."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as bag:
        bag.executescript(f"PRAGMA page_size={PAGE}")
        make_tables(bag, declares, statement)
        add(bag, range(messages), declares)
    bag.close()
    return path.read_bytes()


def make_tables(bag, declares=True, statement=MESSAGES):
    hashed = HASH if declares else ""
    bag.execute(TOPICS.format(hash=hashed))
    bag.execute(statement)
    bag.execute("CREATE INDEX timestamp_idx ON messages (timestamp ASC)")
    if declares:
        bag.execute(DEFINITIONS.format(hash=hashed))
        bag.execute("INSERT INTO message_definitions VALUES (1, 'std_msgs/msg/String', "
                    "'ros2msg', ?, 'RIHS01_1')", (STRING,))
    more = ("RIHS01_1",) if declares else ()
    for number, name in enumerate(("/talker", "/other"), 1):
        row = (number, name, "std_msgs/msg/String", "cdr", QOS, *more)
        bag.execute(f"INSERT INTO topics VALUES ({','.join('?' * len(row))})", row)


def add(bag, numbers, declares=True):
    """Adds messages with these numbers."""
    for number in numbers:
        text = f"message {number} " + "long " * (number % 20 // 19 * 300 * declares)
        row = (1 + number % 3 // 2, T0 + number * 1_000_000, string(text))
        bag.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", row)


def interrupt(path, mode, checkpoint=True):
    """A bag whose recording was interrupted in a transaction, and the file beside it."""
    path.unlink(missing_ok=True)
    bag = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size={PAGE}", f"journal_mode={mode}", "wal_autocheckpoint=0",
                   "cache_size=3"):
        bag.execute(f"PRAGMA {pragma}").fetchall()
    make_tables(bag)
    if checkpoint:
        bag.execute("PRAGMA wal_checkpoint").fetchall()
    # Transactions as of recorders, and one that is not complete.
    for begin in range(0, 60, 10):
        bag.execute("BEGIN")
        add(bag, range(begin, begin + 10))
        bag.execute("COMMIT")
    bag.execute("BEGIN")
    add(bag, range(60, 80))
    beside = path.with_name(path.name + ("-wal" if mode == "WAL" else "-journal"))
    found = path.read_bytes(), beside.read_bytes()
    bag.close()
    return found


def pages_of(bag, kind):
    """The pages of this kind: 5 for branches and 13 for leaves of tables, by number."""
    count = len(bag) // PAGE
    return [n for n in range(2, count + 1) if bag[(n - 1) * PAGE] == kind]


def changed(bag, page, at, to):
    """The bag with other bytes on a page."""
    at += (page - 1) * PAGE
    return bag[:at] + to + bag[at + len(to):]


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)

    def case(name, bag, **beside):
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "log.db3").write_bytes(bag)
        for end, content in beside.items():
            (out / name / f"log.db3-{end}").write_bytes(content)
        (out / name / "pipeline.toml").write_text(PIPELINE)

    scratch = out / "scratch.db3"
    whole = write(scratch, 60)
    case("db3-plain", whole)
    # No case: only a test reads it, whose branches have two levels.
    (out / "db3-branches").mkdir(exist_ok=True)
    (out / "db3-branches" / "log.db3").write_bytes(write(scratch, 1000, declares=False))
    case("db3-without-declarations", write(scratch, 30, declares=False))
    case("db3-empty", write(scratch, 0))
    case("db3-other-statement", write(scratch, 60, statement=OTHER_MESSAGES))
    branch, leaf = pages_of(whole, 5)[0], pages_of(whole, 13)[6]
    case("db3-damaged-branch", changed(whole, branch, 0, b"\xff"))
    case("db3-damaged-leaf", changed(whole, leaf, 0, bytes(PAGE)))
    case("db3-cut-off", whole[: len(whole) * 2 // 3 // PAGE * PAGE + 100])
    scratch.unlink()
    with sqlite3.connect(scratch) as other:
        other.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, text TEXT)")
    other.close()
    case("db3-of-another-program", scratch.read_bytes())
    scratch.unlink()
    # Salts of logs and journals are random: these are other bytes each time.
    bag, wal = interrupt(scratch, "WAL")
    case("db3-interrupted", bag, wal=wal)
    # SQLite would remove the log.
    case("db3-only-in-the-log", b"", wal=interrupt(scratch, "WAL", checkpoint=False)[1])
    at = len(wal) // 2
    case("db3-damaged-log", bag, wal=wal[:at] + bytes([wal[at] ^ 1]) + wal[at + 1:])
    bag, journal = interrupt(scratch, "DELETE")
    case("db3-to-be-rolled-back", bag, journal=journal)
    scratch.unlink()


if __name__ == "__main__":
    main()
