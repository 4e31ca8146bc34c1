"""Counts the messages of an MCAP file with the Python package `mcap`.

    read_mcap_py.py FILE
"""

import sys

from mcap.reader import make_reader


def main():
    with open(sys.argv[1], "rb") as file:
        print(sum(1 for _ in make_reader(file).iter_messages(log_time_order=False)))


if __name__ == "__main__":
    main()
