"""Checks invariants of the simulation in scaling.py: its bounds hold, and no work is lost."""

import math
import unittest
from dataclasses import replace

from scaling import ATTEMPTS, Cluster, Costs, beside, fair, finishing, lengths, publishing, simulate

DRIVES = lengths(400, 1000, 1.0, seed=7)
COSTS = Costs(rate=60, written=0.45, files=61, order=0.0002, dispatch=0.0007, hand_over=0.005,
              start=0.06, sync=0.002,
              poll=0.1, publish=0.004, publish_file=0.0002, publish_sync=0.0001)
# Jobs, each with the resource that bounds it.
BOUND = {
    "executors": (Cluster(), COSTS),
    "network of an executor": (Cluster(executors=3, link=20), COSTS),
    "storage": (Cluster(executors=20, storage=500), COSTS),
    "driver": (Cluster(executors=20), replace(COSTS, publish=2.0)),
    "scheduler": (Cluster(executors=20), replace(COSTS, dispatch=2.0)),
    "longest drive": (Cluster(executors=100), COSTS),
}


class Scaling(unittest.TestCase):
    def test_one_slot_takes_the_sum_of_all_costs(self):
        costs = replace(COSTS, poll=0)
        cluster = Cluster(cores=1, slots=1)
        each = beside(costs) * len(DRIVES) + sum(DRIVES) / costs.rate
        wanted = costs.order * len(DRIVES) + each + publishing(costs)
        self.assertAlmostEqual(simulate(DRIVES, cluster, costs).time, wanted, places=3)

    def test_slots_are_never_busier_than_there_is_time_for(self):
        for cluster, costs in BOUND.values():
            outcome = simulate(DRIVES, cluster, costs)
            self.assertLessEqual(outcome.busy,
                                 cluster.executors * cluster.slots * outcome.time * (1 + 1e-9))
            self.assertLessEqual(outcome.driver, outcome.time)
            self.assertLessEqual(outcome.scheduler, outcome.time)
            self.assertLessEqual(outcome.moved, cluster.storage * outcome.time * (1 + 1e-9))

    def test_all_bytes_are_moved_once_and_all_units_published_once(self):
        for cluster, costs in BOUND.values():
            outcome = simulate(DRIVES, cluster, costs)
            self.assertAlmostEqual(outcome.moved, sum(DRIVES) * (1 + costs.written), places=3)
            self.assertEqual(outcome.published, len(DRIVES))
            self.assertEqual(outcome.wasted, 0)

    def test_no_job_is_faster_than_what_bounds_it(self):
        for cluster, costs in BOUND.values():
            outcome = simulate(DRIVES, cluster, costs)
            for what, least in outcome.bounds.items():
                self.assertGreaterEqual(outcome.time * (1 + 1e-9), least, what)

    def test_what_bounds_a_job_is_found_and_takes_most_of_its_time(self):
        for what, (cluster, costs) in BOUND.items():
            outcome = simulate(DRIVES, cluster, costs)
            self.assertEqual(outcome.bound, what)
            self.assertGreater(outcome.bounds[what] / outcome.time, 0.8, what)

    def test_more_executors_take_no_longer(self):
        for storage in (math.inf, 1000):
            times = [simulate(DRIVES, Cluster(executors=n, storage=storage), COSTS).time
                     for n in (1, 2, 4, 8, 16, 64)]
            for fewer, more in zip(times, times[1:]):
                # Units that end at other times are seen at another poll of the driver.
                self.assertLessEqual(more, fewer * 1.02)

    def test_faster_storage_takes_no_longer(self):
        times = [simulate(DRIVES, Cluster(executors=8, storage=storage), COSTS).time
                 for storage in (250, 1000, 4000)]
        self.assertEqual(times, sorted(times, reverse=True))

    def test_every_unit_is_published_or_given_up_however_often_executors_fail(self):
        for hours in (1.0, 0.2, 0.05):
            outcome = simulate(DRIVES, Cluster(executors=6, failing=hours, back_after=60), COSTS,
                               seed=3)
            self.assertEqual(outcome.published + outcome.given_up, len(DRIVES))
            self.assertGreater(outcome.failures, 0)
            done = (outcome.moved - outcome.wasted) / (1 + COSTS.written)
            self.assertLessEqual(done, sum(DRIVES) * ATTEMPTS)
            self.assertGreater(outcome.wasted, 0)

    def test_logs_on_another_storage_leave_the_shared_one_to_outputs(self):
        cluster = Cluster(executors=8, storage=250, logs=0.0)
        outcome = simulate(DRIVES, cluster, COSTS)
        self.assertAlmostEqual(outcome.moved, sum(DRIVES) * COSTS.written, places=3)
        self.assertLess(outcome.time, simulate(DRIVES, replace(cluster, logs=1.0), COSTS).time)

    def test_failures_cost_time(self):
        never, often = (
            simulate(DRIVES, Cluster(executors=6, failing=hours, back_after=60), COSTS, seed=3).time
                        for hours in (math.inf, 0.1))
        self.assertGreater(often, never)

    def test_the_same_seed_gives_the_same_job(self):
        cluster = Cluster(executors=6, failing=0.2)
        self.assertEqual(simulate(DRIVES, cluster, COSTS, seed=5),
                         simulate(DRIVES, cluster, COSTS, seed=5))
        self.assertEqual(lengths(9, 1000, 1.0, seed=5), lengths(9, 1000, 1.0, seed=5))
        self.assertNotEqual(lengths(9, 1000, 1.0, seed=5), lengths(9, 1000, 1.0, seed=6))

    def test_drives_have_the_mean_that_is_asked_for(self):
        for sigma in (0, 0.5, 2):
            self.assertAlmostEqual(sum(lengths(1000, 1000, sigma, seed=1)), 1e6, places=3)

    def test_what_is_shared_is_shared_out_whole_and_fairly(self):
        # Two executors with one unit, which can take 10; three with two, whose units can take 4.
        counts, most = [0, 2, 3], [10, 10, 4]
        self.assertEqual(fair(counts, most, 100), most)
        for whole in (40, 30, 8):
            rates = fair(counts, most, whole)
            self.assertAlmostEqual(sum(n * count * rates[n] for n, count in enumerate(counts)),
                                   whole)
            self.assertTrue(all(rate <= limit for rate, limit in zip(rates, most)))
        self.assertEqual(fair(counts, most, 40)[2], 4)
        self.assertEqual(len(set(fair(counts, most, 8))), 1)

    def test_finishing_costs_every_file(self):
        self.assertEqual(finishing(replace(COSTS, files=3, sync=0.5)), 1.5)


if __name__ == "__main__":
    unittest.main()
