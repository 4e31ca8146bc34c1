#!/usr/bin/env python3
"""Simulates how a job of many drives scales with executors, and what bounds it. Deterministic.

    benches/scaling.py [--drives 10000] [--executors 1,2,5,10,20,50,100] [--storage nfs-10] [--costs FILE]…

`unit_costs.py` measures the cost of a unit with a real program; the defaults are one of its
results. Storage, network, drive lengths and failure rates are assumptions, and options. Prints
Markdown. Converts nothing, and models only the parts of a cluster that are described here. Sizes
are in millions of bytes, times in seconds.
"""

import argparse
import heapq
import json
import math
import random
import sys
from collections import deque
from dataclasses import dataclass, fields, replace
from pathlib import Path

# The maximum number of attempts at a unit whose executor fails.
ATTEMPTS = 3
# The folders that the driver syncs at a time.
FOLDERS_AT_A_TIME = 8


@dataclass(frozen=True)
class Costs:
    """The fixed costs of a unit, and the rate of a core, as `unit_costs.py` measured them with an
    optimised program on an idle machine. Syncs are those of a file system on a network."""

    # Millions of bytes of input per second and core.
    rate: float = 207.0
    # Bytes written for each byte read.
    written: float = 0.59
    # Files per unit.
    files: int = 61
    # On the driver, before anything is sent: finding the input, creating its order.
    order: float = 0.0002
    # On the scheduler, sequential.
    dispatch: float = 0.0016
    # From a free slot to an order in it; idle time.
    hand_over: float = 0.0005
    # On the executor: reading the order, opening the input, and its share of starting a process.
    start: float = 0.0068
    # On the executor: syncing and renaming a file.
    sync: float = 0.004
    # The polling interval of the driver.
    poll: float = 0.1
    # On the driver, sequential: checking, recording and publishing a unit and each of its files;
    # and syncing the folder of each, some at a time.
    publish: float = 0.0011
    publish_file: float = 0.00024
    publish_sync: float = 0.004


@dataclass(frozen=True)
class Cluster:
    """Identical executors, and the resources they share."""

    executors: int = 1
    cores: int = 8
    # Concurrent units, each with its share of the cores.
    slots: int = 8
    # The network rate of an executor, in each direction.
    link: float = 1250.0
    # The rate of the shared storage, reading and writing together, and the share of the logs on
    # it. An object store has no bound that one job would reach.
    storage: float = math.inf
    logs: float = 1.0
    # The mean hours until an executor fails; the seconds until that is noticed, and until it is
    # back.
    failing: float = math.inf
    lost_after: float = 20.0
    back_after: float = 600.0


# Shared storage: rate, seconds to sync a file or folder, and share of the logs on it.
STORAGE = {
    "disk": (2000.0, 0.0027, 1.0),
    "nfs-1": (1000.0, 0.004, 1.0),
    "nfs-10": (10_000.0, 0.004, 1.0),
    "s3": (10_000.0, 0.004, 0.0),
}


def lengths(count, mean, sigma, seed):
    """Log-normal drive lengths with exactly this mean."""
    dice = random.Random(seed)
    drawn = [dice.lognormvariate(0, sigma) for _ in range(count)]
    scale = mean * count / sum(drawn)
    return [scale * length for length in drawn]


@dataclass
class Outcome:
    """The result of a job."""

    time: float
    # Seconds in which slots had a unit, the driver published, and the scheduler dispatched.
    busy: float
    driver: float
    scheduler: float
    # Millions of bytes moved over the storage, and how many of them were wasted.
    moved: float
    wasted: float
    published: int
    given_up: int
    failures: int
    # The minimum time that each resource alone needs.
    bounds: dict

    @property
    def bound(self):
        return max(self.bounds, key=self.bounds.get)


class Executor:
    """A machine: its slots, and the progress of the units in them."""

    def __init__(self):
        # The number of failures: work started in an earlier life is void.
        self.life = 0
        # Working units, by the total work at which each finishes, and the work done so far.
        self.working, self.done, self.rate = [], 0.0, 0.0
        # The units in its slots, with start times.
        self.held = {}


class Simulation:
    """A discrete-event simulation of a job on a cluster."""

    def __init__(self, drives, cluster, costs, seed=0):
        self.drives, self.cluster, self.costs = drives, cluster, costs
        self.threads = cluster.cores / cluster.slots
        self.per_byte = through_storage(cluster, costs)
        self.dice = random.Random(seed)
        self.now, self.events, self.number = 0.0, [], 0
        self.queue, self.attempts = deque(range(len(drives))), [0] * len(drives)
        self.executors = [Executor() for _ in range(cluster.executors)]
        # The number of executors by their number of working units.
        self.at_work = [cluster.executors] + [0] * cluster.slots
        self.waiting = deque()
        self.scheduler_free = self.driver_free = 0.0
        self.busy = self.driver = self.scheduler = self.moved = self.wasted = 0.0
        self.published = self.given_up = self.failures = 0

    def run(self):
        began = self.costs.order * len(self.drives)
        for number in range(len(self.executors)):
            self.at(began, self.come_up, number)
        while self.published + self.given_up < len(self.drives):
            self.step()
        return Outcome(self.now, self.busy, self.driver, self.scheduler, self.moved, self.wasted,
                       self.published,
                       self.given_up, self.failures, bounds(self.drives, self.cluster, self.costs))

    def at(self, time, what, *words):
        self.number += 1
        heapq.heappush(self.events, (time, self.number, what, words))

    def step(self):
        """Advances to the next event, or to the next unit that finishes its bytes."""
        through, who = self.next_through()
        if self.events and self.events[0][0] <= through:
            time, _, what, words = heapq.heappop(self.events)
            self.go_on_to(time)
            what(*words)
        else:
            self.go_on_to(through)
            executor = self.executors[who]
            executor.done, unit = heapq.heappop(executor.working)
            self.work_on(who, -1)
            self.moved += self.drives[unit] * self.per_byte
            self.at(self.now + finishing(self.costs), self.deliver, who, executor.life, unit)

    def next_through(self):
        soonest, who = math.inf, None
        for number, executor in enumerate(self.executors):
            if executor.working:
                time = self.now + max(0.0, executor.working[0][0] - executor.done) / executor.rate
                if time < soonest:
                    soonest, who = time, number
        return soonest, who

    def go_on_to(self, time):
        passed = time - self.now
        if passed > 0:
            for executor in self.executors:
                if executor.working:
                    executor.done += executor.rate * passed
            self.now = time

    def work_on(self, who, more):
        """Changes the number of working units of an executor, and redistributes the shared rates."""
        now = len(self.executors[who].working)
        self.at_work[now - more] -= 1
        self.at_work[now] += 1
        self.share()

    def share(self):
        rates = fair(self.at_work, [self.fastest(units) for units in range(self.cluster.slots + 1)],
                     self.cluster.storage / self.per_byte)
        for executor in self.executors:
            executor.rate = rates[len(executor.working)]

    def fastest(self, units):
        """The rate of each of this many units on one executor, with unbounded storage."""
        return min(self.costs.rate * self.threads,
                   through_link(self.cluster, self.costs) / max(1, units))

    def come_up(self, who):
        for _ in range(self.cluster.slots):
            self.ask(who)
        if math.isfinite(self.cluster.failing):
            self.at(self.now + self.dice.expovariate(1 / (self.cluster.failing * 3600)), self.fail,
                    who)

    def ask(self, who):
        """A free slot asks for a unit."""
        if not self.queue:
            self.waiting.append((who, self.executors[who].life))
            return
        unit = self.queue.popleft()
        self.attempts[unit] += 1
        self.scheduler_free = max(self.now, self.scheduler_free) + self.costs.dispatch
        self.scheduler += self.costs.dispatch
        executor = self.executors[who]
        executor.held[unit] = self.now
        self.at(self.scheduler_free + self.costs.hand_over, self.start, who, executor.life, unit)

    def start(self, who, life, unit):
        if life == self.executors[who].life:
            self.at(self.now + self.costs.start, self.work, who, life, unit)

    def work(self, who, life, unit):
        executor = self.executors[who]
        if life == executor.life:
            heapq.heappush(executor.working, (executor.done + self.drives[unit], unit))
            self.work_on(who, 1)

    def deliver(self, who, life, unit):
        executor = self.executors[who]
        if life != executor.life:
            return
        self.busy += self.now - executor.held.pop(unit)
        self.ask(who)
        poll = self.costs.poll
        seen = math.ceil(self.now / poll) * poll if poll else self.now
        cost = publishing(self.costs)
        self.driver_free = max(seen, self.driver_free) + cost
        self.driver += cost
        self.at(self.driver_free, self.publish)

    def publish(self):
        self.published += 1

    def fail(self, who):
        """Loses all work in progress of an executor, which is noticed later."""
        executor = self.executors[who]
        self.failures += 1
        executor.life += 1
        for end, unit in executor.working:
            moved = (self.drives[unit] - max(0.0, end - executor.done)) * self.per_byte
            self.moved += moved
            self.wasted += moved
        self.at_work[len(executor.working)] -= 1
        self.at_work[0] += 1
        executor.working, executor.done = [], 0.0
        for unit, since in sorted(executor.held.items()):
            self.busy += self.now - since
            self.at(self.now + self.cluster.lost_after, self.again, unit)
        executor.held = {}
        self.share()
        self.at(self.now + self.cluster.back_after, self.come_up, who)

    def again(self, unit):
        if self.attempts[unit] == ATTEMPTS:
            self.given_up += 1
            return
        self.queue.appendleft(unit)
        while self.waiting:
            who, life = self.waiting.popleft()
            if life == self.executors[who].life:
                self.ask(who)
                return


def fair(counts, most, whole):
    """The share of `whole` per unit, by the number of units on its executor: equal for all, or the
    maximum it can take."""
    units = [number * count for number, count in enumerate(counts)]
    if sum(n * rate for n, rate in zip(units, most)) <= whole:
        return most
    level, left, some = 0.0, whole, sum(units)
    # From the slowest: one that cannot take the level leaves the rest to the others.
    for rate, n in sorted(zip(most, units)):
        if n == 0:
            continue
        level = left / some
        if rate > level:
            break
        left, some = left - n * rate, some - n
    return [min(rate, level) for rate in most]


def through_link(cluster, costs):
    """The input rate that an executor's network allows, including the output."""
    return cluster.link / max(1, costs.written)


def through_storage(cluster, costs):
    """Bytes moved over the shared storage per byte of input."""
    return cluster.logs + costs.written


def finishing(costs):
    return costs.sync * costs.files


def publishing(costs):
    syncs = math.ceil(costs.files / FOLDERS_AT_A_TIME)
    return costs.publish + costs.publish_file * costs.files + costs.publish_sync * syncs


def beside(costs):
    """The fixed seconds of a unit in a slot."""
    return costs.dispatch + costs.hand_over + costs.start + finishing(costs)


def bounds(drives, cluster, costs):
    """The minimum time of a job, by resource."""
    count, bytes_ = len(drives), sum(drives)
    per_byte, rate = through_storage(cluster, costs), costs.rate * cluster.cores / cluster.slots
    # No waiting, and nothing is shared.
    alone = min(rate, through_link(cluster, costs), cluster.storage / per_byte)
    return {
        "executors": (beside(costs) * count + bytes_ / rate) / (cluster.executors * cluster.slots),
        "network of an executor": bytes_ / (cluster.executors * through_link(cluster, costs)),
        "storage": bytes_ * per_byte / cluster.storage,
        "driver": publishing(costs) * count,
        "scheduler": costs.dispatch * count,
        "longest drive": beside(costs) + max(drives) / alone + publishing(costs),
    }


def simulate(drives, cluster, costs, seed=0):
    return Simulation(drives, cluster, costs, seed).run()


def table(drives, cluster, costs, counts, seed):
    """One row per number of executors."""
    yield "| executors | time | speed-up | efficiency | bound by | which alone takes | slots busy | storage | driver | lost |"
    yield "|" + " ---: |" * 4 + " --- |" + " ---: |" * 5
    one = simulate(drives, replace(cluster, executors=1, failing=math.inf), costs, seed).time
    for count in counts:
        some = replace(cluster, executors=count)
        outcome = simulate(drives, some, costs, seed)
        speed = one / outcome.time
        of_storage = outcome.moved / (outcome.time * cluster.storage)
        cells = [
            f"{count}", duration(outcome.time), f"{speed:.1f}", f"{speed / count:.0%}",
            outcome.bound,
            f"{outcome.bounds[outcome.bound] / outcome.time:.0%}",
            f"{outcome.busy / (outcome.time * count * cluster.slots):.0%}", f"{of_storage:.0%}",
            f"{outcome.driver / outcome.time:.0%}", lost(outcome),
        ]
        yield f"| {' | '.join(cells)} |"


def lost(outcome):
    if not outcome.failures:
        return "-"
    text = f"{outcome.failures} executors, {outcome.wasted / max(outcome.moved, 1e-9):.2%} of the bytes"
    return text + (f", {outcome.given_up} units" if outcome.given_up else "")


def duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drives", type=int, default=10_000)
    parser.add_argument("--mean", type=float, default=1000,
                        help="length of a drive on average, in MB")
    parser.add_argument("--sigma", type=float, default=1.0,
                        help="how unlike drives are; 0: all have one length")
    parser.add_argument("--longest-first", action="store_true",
                        help="hand out long drives before short ones")
    parser.add_argument("--executors", default="1,2,5,10,20,50,100")
    parser.add_argument("--cores", type=int, default=8, help="cores of an executor")
    parser.add_argument("--slots", type=int,
                        help="units at a time on an executor; one a core if left out")
    parser.add_argument("--link", type=float, default=1250,
                        help="what an executor's network carries in each direction, in MB/s")
    parser.add_argument("--storage", default="nfs-10",
                        help=f"what all share: {', '.join(STORAGE)} (logs from an object store, outputs as with "
                             "nfs-10), or a number of MB/s")
    parser.add_argument("--failing", type=float, default=math.inf,
                        help="hours until an executor fails, on average")
    parser.add_argument("--costs", type=Path, help="what unit_costs.py has measured")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER",
                        help="another cost of a unit: "
                        + ", ".join(field.name for field in fields(Costs)))
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def costs_of(options, sync):
    """The default or measured costs, for storage with this sync time, with the overrides."""
    values = {}
    if options.costs:
        measured = json.loads(options.costs.read_text())
        values = {field.name: measured[field.name] for field in fields(Costs)
                  if field.name in measured}
    # The measured sync time is that of a local disk.
    values |= {"sync": sync, "publish_sync": sync}
    for assignment in options.set:
        name, _, value = assignment.partition("=")
        if name not in {field.name for field in fields(Costs)}:
            sys.exit(f"scaling.py: there is no cost `{name}`")
        values[name] = float(value)
    return Costs(**values)


def main():
    options = arguments()
    storage, sync, logs = STORAGE.get(options.storage) or (float(options.storage),
                                                           *STORAGE["nfs-10"][1:])
    costs = costs_of(options, sync)
    drives = lengths(options.drives, options.mean, options.sigma, options.seed)
    if options.longest_first:
        drives.sort(reverse=True)
    cluster = Cluster(cores=options.cores, slots=options.slots or options.cores, link=options.link,
                      storage=storage,
                      logs=logs, failing=options.failing)
    counts = [int(count) for count in options.executors.split(",")]
    print(f"{options.drives:,} drives, {sum(drives) / 1e6:.1f} TB, the longest {max(drives) / 1000:.1f} GB; executors "
          f"with {cluster.cores} cores and {cluster.slots} slots; storage {options.storage}\n")
    print("\n".join(table(drives, cluster, costs, counts, options.seed)))


if __name__ == "__main__":
    main()
