"""Fields of a log as rows on one time base, compared with pandas and LCM's Python module; and whole
LeRobot datasets, compared with LeRobot's own writer."""

import subprocess
from datetime import datetime, timedelta

import pipelines
from checks import DATASET_SUMS, SUMS
from harness import Job, say
from logs import Log

GROUP, TASK, LOG = "datasets", "rows at 50 Hz", "car"
PANDAS = "Python classes + pandas"
ROUNDS = 3
FIELDS = {
    "vel": "POSE.vel",
    "turn": "POSE.rotation_rate[2]",
    "scan": "SKIRT_FC.ranges",
    "fix": "GPS_TO_LOCAL.local",
    "pos": {"field": "POSE.pos", "method": "linear"},
}
SIGNALS, IMAGES, LEROBOT = "dataset of signals, 50 fps", "dataset of images, 10 fps", "lerobot"
# Of the drive that becomes a dataset; LeRobot's imports take seconds.
SECONDS, EPISODE, CAMERA = 240, 20, "CAM_THUMB_RFC"
DRIVE, FEW = "drive-lcm", "episodes-1000"
FEATURES = {"observation.state": ["POSE.pos", "POSE.orientation"],
            "action": ["POSE.vel", "POSE.rotation_rate"]}
FEATURES_WITH_IMAGE = {**FEATURES, "observation.images.front": f"{CAMERA}.image"}
# When the drives of the source `demo` start.
START = datetime(2007, 11, 3, 14)
# The datasets whose memory is compared: their episodes take a second each.
MEMORY, EPISODES, CAP = "memory", (10, 100, 1000), 64
CAPPED = f"dataset of episodes, --memory {CAP}MiB"


class DemoDrive(Log):
    """A drive of the source `demo`, or some channels of it."""

    def __init__(self, bench, name, seconds, channels="*"):
        super().__init__(name, bench.data / f"{name}.lcm", bench.programs)
        self.seconds, self.channels_kept, self.sluice = seconds, channels, bench.sluice
        demo, keep = {"plugin": "demo", "seconds": seconds}, {"plugin": "filter",
                                                              "channels": channels}
        self.command = bench.sluice.run(f"make-{name}", demo, pipelines.lcm_log(self.path),
                                        "--overwrite", stage=keep)

    def write(self):
        # As long as it has the same seconds and channels, it has the same bytes.
        stamp, how = self.path.with_suffix(".made"), repr((self.seconds, self.channels_kept))
        if stamp.exists() and stamp.read_text() == how and self.path.exists():
            return
        say(f"making {self.path}")
        self.sluice.prepare(self.command[-1])
        subprocess.run([str(word) for word in self.command], stdout=subprocess.DEVNULL, check=True)
        stamp.write_text(how)

    def episodes(self, length):
        """A file with episodes of so many seconds, one after another."""
        path = self.path.with_suffix(f".{length}s.csv")
        times = [START + timedelta(seconds=at) for at in range(0, self.seconds + 1, length)]
        lines = [f"{since.isoformat()}Z,{until.isoformat()}Z"
                 for since, until in zip(times, times[1:])]
        path.write_text("\n".join(["start,end", *lines, ""]))
        return path


def jobs(bench):
    log, classes = bench.log(LOG), bench.classes()
    check = same_sums(bench.peers.python)
    sink = pipelines.parquet(bench.out(""), "channel", compression=pipelines.zstd(3))
    stages = [pipelines.decode(["mit-dgc", bench.types]), pipelines.align("50Hz", FIELDS)]

    def ours(who, *flags):
        name = f"{GROUP}-{who}".replace(" ", "-")
        command = bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags, stage=stages)
        return Job(GROUP, TASK, who, log, command, out=bench.out(""), check=check, rounds=ROUNDS)

    yield ours("sluice")
    yield ours("sluice --jobs 1", "--jobs", 1)
    if bench.peers.has("pandas"):
        out = bench.out("")
        command = bench.peers.script("align_lcm_pandas.py", log, out, classes)
        yield Job(GROUP, TASK, PANDAS, log, command, out=out, check=check, needs=[classes],
                  rounds=ROUNDS)


def lerobot_jobs(bench):
    """Whole datasets by Sluice and by a script with LeRobot's own writer, of all that a car records
    and of a log that has little else than what is in the dataset."""
    drive = DemoDrive(bench, DRIVE, max(EPISODE, SECONDS * bench.percent // 100))
    few = DemoDrive(bench, FEW, EPISODES[-1], ["POSE", CAMERA])
    for task, log, fps, fields, words in ((SIGNALS, drive, 50, FEATURES, []),
                                          (SIGNALS, few, 50, FEATURES, []),
                                          (IMAGES, drive, 10, FEATURES_WITH_IMAGE, [CAMERA])):
        out, check = bench.out(".dataset"), same_sums(bench.peers.python, DATASET_SUMS)
        classes, episodes = bench.classes(), log.episodes(EPISODE)
        for who, flags in (("sluice", []), ("sluice --jobs 1", ["--jobs", 1])):
            name = f"{task}-{log.name}-{len(flags)}"
            command = dataset(bench, name, log, fps, fields, episodes, *flags)
            yield Job(GROUP, task, who, log, command, out=out, check=check, rounds=ROUNDS)
        if bench.peers.lerobot:
            script = bench.peers.script("dataset_lcm_lerobot.py", log, out, classes, fps, episodes,
                                        *words)
            command = [bench.peers.lerobot, *script[1:]]
            yield Job(GROUP, task, LEROBOT, log, command, out=out, check=check, needs=[classes],
                      rounds=1)


def memory_jobs(bench):
    """Datasets with a camera, of more and more episodes: only their memory is measured."""
    for count in EPISODES:
        log = DemoDrive(bench, f"episodes-{count}", count, ["POSE", CAMERA])
        for task, flags in (("dataset of episodes", []), (CAPPED, ["--memory", f"{CAP}MiB"])):
            name = f"{log.name}-{len(flags)}"
            command = dataset(bench, name, log, 10, FEATURES_WITH_IMAGE, log.episodes(1), *flags)
            yield Job(MEMORY, task, "sluice", log, command, rounds=0, out=bench.out(".dataset"))


def dataset(bench, name, log, fps, fields, episodes, *flags):
    """The command that makes a dataset of a log."""
    stages = [pipelines.decode(["mit-dgc"], undecoded="keep"),
              pipelines.align(f"{fps}Hz", fields, tolerance="200ms"),
              pipelines.episodes(episodes)]
    sink = pipelines.lerobot(bench.out(".dataset"), fps, "drive")
    name = f"{GROUP}-{name}".replace(" ", "-").replace(",", "")
    return bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags, stage=stages)


def same_sums(python, script=SUMS):
    """The same rows, and columns that add up to the same, in every output that this check sees."""
    first = []

    def check(out):
        added = subprocess.run([python, script, out], stdout=subprocess.PIPE, check=False)
        first.append(added.stdout)
        return added.returncode == 0 and added.stdout == first[0] != b""

    return check
