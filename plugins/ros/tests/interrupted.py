"""Makes SQLite bags whose recording was interrupted in random ways, each with what SQLite itself
reads of a copy: `interrupted.py FOLDER SEED COUNT`."""

import json
import random
import shutil
import sqlite3
import struct
import sys
from pathlib import Path

from make_db3 import MESSAGES, TOPICS

JOURNAL = bytes.fromhex("d9d505f920a163d7")


def some(dice, rows):
    """Rows of messages, most of them short."""
    for _ in range(rows):
        longest = dice.choice((10, 10, 200, 3000, 20_000 if dice.random() < 0.1 else 50))
        yield 1 + dice.randrange(2), dice.randrange(2**40), dice.randbytes(dice.randrange(longest))


def change(dice, bag):
    """A part of a transaction."""
    what = dice.random()
    if what < 0.8:
        rows = some(dice, dice.choice((1, 3, 40)))
        bag.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", rows)
    elif what < 0.9:
        bag.execute("DELETE FROM messages WHERE id % 7 = ?", (dice.randrange(7),))
    else:
        bag.execute("UPDATE messages SET data = ? WHERE id % 5 = ?",
                    (dice.randbytes(dice.randrange(3000)), dice.randrange(5)))


def transaction(dice, bag):
    bag.execute("BEGIN")
    for _ in range(dice.randrange(1, 4)):
        change(dice, bag)
    bag.execute(dice.choice(("COMMIT",) * 9 + ("ROLLBACK",)))


def record(dice, path, is_wal):
    """Records a bag, and copies it and what is beside it in the middle."""
    bag = sqlite3.connect(path / "work.db3", isolation_level=None)
    bag.execute(f"PRAGMA page_size={2 ** dice.randrange(9, 17)}")
    bag.execute(f"PRAGMA auto_vacuum={dice.choice((0, 0, 1, 2))}")
    if dice.random() < 0.3:
        bag.execute(TOPICS.format(hash=""))
    mode = "WAL" if is_wal else dice.choice(("DELETE", "TRUNCATE", "PERSIST"))
    bag.execute(f"PRAGMA journal_mode={mode}").fetchall()
    bag.execute(f"PRAGMA synchronous={dice.choice(('OFF', 'NORMAL', 'FULL'))}")
    bag.execute(f"PRAGMA wal_autocheckpoint={dice.choice((0, 0, 20))}")
    bag.execute(f"PRAGMA cache_size={dice.choice((3, 10, 100))}")
    bag.execute(TOPICS.format(hash="").replace("TABLE", "TABLE IF NOT EXISTS"))
    bag.execute(MESSAGES)
    bag.execute("CREATE INDEX timestamp_idx ON messages (timestamp ASC)")
    for number, name in enumerate(("/talker", "/other"), 1):
        bag.execute("INSERT INTO topics VALUES (?, ?, 'std_msgs/msg/String', 'cdr', '')",
                    (number, name))
    for _ in range(dice.randrange(12)):
        what = dice.random()
        if what < 0.06:
            bag.execute("VACUUM")
        elif what < 0.2 and is_wal:
            how = dice.choice(("PASSIVE", "RESTART", "TRUNCATE"))
            bag.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        else:
            transaction(dice, bag)
    if dice.random() < 0.6 or not is_wal:
        bag.execute("BEGIN")
        for _ in range(dice.randrange(1, 6)):
            change(dice, bag)
    for end in ("", "-wal", "-journal"):
        if (path / f"work.db3{end}").exists():
            shutil.copy(path / f"work.db3{end}", path / f"log.db3{end}")
    bag.close()
    for file in path.glob("work.*"):
        file.unlink()


def checksums(log, order):
    """The log with new checksums, of words in this order."""
    size = struct.unpack_from(">I", log, 8)[0]
    log = bytearray(log)
    struct.pack_into(">I", log, 0, 0x377F0682 + (order == ">"))

    def sum_of(first, second, data):
        words = struct.unpack(f"{order}{len(data) // 4}I", data)
        for even, odd in zip(words[::2], words[1::2]):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        return first, second

    sums = sum_of(0, 0, log[:24])
    struct.pack_into(">2I", log, 24, *sums)
    for at in range(32, len(log) - size - 23, size + 24):
        if log[at + 8:at + 16] == log[16:24]:
            sums = sum_of(*sums, log[at:at + 8] + log[at + 24:at + 24 + size])
            struct.pack_into(">2I", log, at + 16, *sums)
    return bytes(log)


def with_sectors(journal, sector):
    """The journal in one segment, with sectors of another length."""
    count, _, _, old, size = struct.unpack_from(">5I", journal, 8)
    if journal[:8] != JOURNAL or count == 0xFFFFFFFF:
        return journal
    records = journal[old:old + count * (size + 8)]
    header = journal[:20] + struct.pack(">2I", sector, size)
    return header.ljust(sector, b"\0") + records


def damage(dice, path):
    """Changes the file beside a bag; returns how."""
    beside = path.read_bytes()
    how = dice.choice(("whole", "whole", "cut", "byte", "hole", "other"))
    at = dice.randrange(len(beside))
    if how == "cut":
        beside = beside[:at]
    elif how == "byte":
        beside = beside[:at] + bytes([beside[at] ^ 1 << dice.randrange(8)]) + beside[at + 1:]
    elif how == "hole":
        beside = beside[:at] + bytes(len(beside[at:at + 700])) + beside[at + 700:]
    elif how == "other" and path.name.endswith("-wal"):
        beside = checksums(beside, ">")
    elif how == "other":
        beside = with_sectors(beside, 2 ** dice.randrange(5, 17))
    path.write_bytes(beside)
    return how


def expected(path, scratch):
    """The messages of a copy that SQLite completes; `None` if it cannot."""
    for file in path.glob("log.*"):
        shutil.copy(file, scratch / file.name)
    try:
        bag = sqlite3.connect(scratch / "log.db3")
        rows = bag.execute("SELECT id, topic_id, timestamp, data FROM messages ORDER BY id")
        rows = [[*row[:3], row[3].hex()] for row in rows]
        topics = bag.execute("SELECT count(*) FROM topics").fetchone()[0]
        is_whole = bag.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        bag.close()
        return rows if topics == 2 and is_whole else None
    except sqlite3.DatabaseError:
        return None
    finally:
        for file in scratch.glob("log.*"):
            file.unlink()


def main():
    out, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    scratch = out / "scratch"
    scratch.mkdir(parents=True)
    for number in range(count):
        dice = random.Random(seed * 1_000_003 + number)
        path = out / str(number)
        path.mkdir()
        record(dice, path, number % 2 == 0)
        intact = expected(path, scratch)
        how = "none"
        for end in ("-wal", "-journal"):
            beside = path / f"log.db3{end}"
            if beside.exists() and beside.stat().st_size > 0:
                how = end + " " + damage(dice, beside)
        case = {"how": how, "intact": intact, "messages": expected(path, scratch)}
        (path / "expected.json").write_text(json.dumps(case))


if __name__ == "__main__":
    main()
