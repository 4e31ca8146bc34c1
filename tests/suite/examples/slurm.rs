//! The files for Slurm on a real one: a controller and two nodes, each a host of its own. Needs the
//! packages that `.ci/peers` unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Site;
use crate::kit::{ProgramOutput, drive, log, report_skip, root};
use crate::live::until;
use crate::namespaces::{Host, Network};

/// The timeout of every wait. It is reached only if something is wrong.
const DEADLINE: Duration = Duration::from_secs(240);

/// The parts of the array.
const PARTS: usize = 64;

/// Nodes with more processors and memory than this machine may have: the example asks for eight of
/// them. Requeued parts wait for `cred_expire`, and five seconds are its minimum.
const CONFIGURATION: &str = "\
ClusterName=test
SlurmctldHost=head(HEAD)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=5
PluginDir=PROGRAMS/plugins
StateSaveLocation=PLACE/state
SlurmdSpoolDir=PLACE/spool-%n
SlurmctldPidFile=PLACE/slurmctld.pid
SlurmdPidFile=PLACE/slurmd-%n.pid
SlurmctldLogFile=PLACE/slurmctld.log
SlurmdLogFile=PLACE/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobRequeue=1
ReturnToService=2
SlurmdTimeout=10
KillWait=2
MailProg=/bin/true
NodeName=one NodeAddr=ONE CPUs=16 RealMemory=16384
NodeName=two NodeAddr=TWO CPUs=16 RealMemory=16384
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
";

/// Authenticates messages between the hosts, which have files of their own below `/run`.
const MUNGED: &str = "\
mount -t tmpfs none /run
munged --force --key-file=\"$PLACE/munge.key\" --socket=/run/munge.socket \
    --pid-file=/run/munge.pid --log-file=/run/munge.log --seed-file=/run/munge.seed";

/// A site with more logs than parts, the last of which takes long, and a Slurm cluster.
struct SlurmCluster {
    // Ended in this order: the files last.
    nodes: Vec<Host>,
    head: Host,
    _network: Network,
    site: Site,
    /// The outputs of a single run on this machine.
    expected: BTreeMap<PathBuf, Vec<u8>>,
    /// The bytes of the last log.
    last_log: Vec<u8>,
}

impl SlurmCluster {
    /// Starts a cluster; `None`, with a message, if that is not possible.
    fn start() -> Option<Self> {
        if !programs().join("run").exists() {
            report_skip("there is no Slurm in .cache/slurm; .ci/peers unpacks it");
            return None;
        }
        let network = Network::start()?;
        let site = Site::new();
        // The part that has log 2 has the last one, too.
        for n in 0..PARTS - 2 {
            site.workdir.write(&format!("data/logs/more-{n:02}.lcm"), log(&drive(n as u64, 20)));
        }
        let expected = site.expected_outputs();
        let last_log = site.workdir.read(LAST_LOG);
        let head = network.host("head", 1);
        let nodes = vec![network.host("one", 2), network.host("two", 3)];
        let cluster = Self { nodes, head, _network: network, site, expected, last_log };
        cluster.hold_last_log();
        cluster.configure();
        cluster.daemon(&cluster.head, "slurmctld-wlm");
        cluster.nodes.iter().for_each(|node| cluster.daemon(node, NODE_DAEMON));
        cluster.until("idle nodes", |cluster| cluster.ask("sinfo -h -t idle -o %D") == "2");
        Some(cluster)
    }

    fn configure(&self) {
        let place = self.site.workdir.at("slurm");
        fs::create_dir_all(place.join("state")).unwrap();
        let texts = [
            ("PLACE", place.display().to_string()),
            ("PROGRAMS", programs().display().to_string()),
            ("HEAD", Network::address(1)),
            ("ONE", Network::address(2)),
            ("TWO", Network::address(3)),
        ];
        let text = texts.iter().fold(CONFIGURATION.to_owned(), |text, (a, b)| text.replace(a, b));
        self.site.workdir.write("slurm/slurm.conf", text);
        let key = self.site.workdir.write("slurm/munge.key", [7; 128]);
        fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// A command on a host that finds Slurm and Sluice.
    fn command(&self, host: &Host, script: &str) -> Command {
        let mut command = host.command(self.site.workdir.path(), programs().join("run"));
        command.args(["sh", "-euc", script]).envs(self.site.environment());
        let place = self.site.workdir.at("slurm");
        command.env("SLURM_CONF", place.join("slurm.conf")).env("PLACE", place);
        command
    }

    /// Starts a daemon on a host. It ends with the host.
    fn daemon(&self, host: &Host, daemon: &str) {
        let mut command = self.command(host, &format!("{MUNGED}\n{daemon}"));
        // The daemon would keep a pipe open.
        let said = format!("slurm/{}.txt", host.name());
        let stderr = fs::File::create(self.site.workdir.at(&said)).unwrap();
        let status = command.stdout(Stdio::null()).stderr(stderr).status().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&self.site.workdir.read(&said)));
    }

    /// What a command on the head prints.
    fn ask(&self, command: &str) -> String {
        let output = self.command(&self.head, command).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        if !until(DEADLINE, || holds(self)) {
            let log = |name: &str| {
                let text = self.site.workdir.read(&format!("slurm/{name}.log"));
                String::from_utf8_lossy(&text).into_owned()
            };
            let jobs = self.ask("squeue; sinfo");
            let [head, one, two] = ["slurmctld", "slurmd-one", "slurmd-two"].map(log);
            panic!("waited in vain for {what}:\n{jobs}\n{head}\n{one}\n{two}");
        }
    }

    /// Submits the array and the merge; returns the number of the array.
    fn submit(&self) -> String {
        let output = self.command(&self.head, "sh examples/slurm/submit.sh").output().unwrap();
        let printed = ProgramOutput::from_output(output).expect(0).text();
        printed.split(' ').nth(1).unwrap().to_owned()
    }

    /// Replaces the last log by a sparse file that takes long to search for events.
    fn hold_last_log(&self) {
        let file = fs::File::create(self.site.workdir.at(LAST_LOG)).unwrap();
        file.set_len(4 << 40).unwrap();
    }

    /// Puts the last log back.
    fn release_last_log(&self) {
        let beside = self.site.workdir.write("data/beside", &self.last_log);
        fs::rename(beside, self.site.workdir.at(LAST_LOG)).unwrap();
    }

    /// Waits until the part with the last log has done its other log.
    fn until_half_done(&self) {
        let journal = self.site.workdir.at("data/tables/_shard-3-of-64.units.jsonl");
        let is_recorded = || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            // The first line lists what is to be done.
            text.lines().skip(1).any(|unit| unit.contains("logs/2.lcm"))
        };
        self.until("a part that is half done", |_| is_recorded());
    }

    fn state_of(&self, job: &str) -> String {
        self.ask(&format!("squeue -h -j {job} -o %t"))
    }

    fn until_all_ended(&self) {
        self.until("the end of all jobs", |cluster| cluster.ask("squeue -h").is_empty());
    }

    /// What the parts with this number printed.
    fn printed(&self, part: usize) -> String {
        let name = format!("examples/slurm/sluice-convert-{part}.log");
        String::from_utf8(self.site.workdir.read(&name)).unwrap()
    }
}

/// The last of all logs.
const LAST_LOG: &str = "data/logs/more-61.lcm";

const NODE_DAEMON: &str =
    "slurmd-wlm -d \"$(command -v slurmstepd-wlm)\" -N \"$(cat /proc/sys/kernel/hostname)\"";

fn programs() -> PathBuf {
    root().join(".cache/slurm")
}

#[test]
fn a_requeued_part_of_the_slurm_array_continues_where_it_ended() {
    let Some(cluster) = SlurmCluster::start() else { return };
    let array = cluster.submit();
    cluster.until_half_done();
    let part = format!("{array}_3");
    cluster.ask(&format!("scontrol requeue {part}"));
    cluster.until("a part that is requeued", |cluster| cluster.state_of(&part) == "PD");
    cluster.release_last_log();
    cluster.until_all_ended();
    cluster.site.expect(&cluster.expected);
    let printed = cluster.printed(3);
    assert!(printed.contains("DUE TO JOB REQUEUE"), "{printed}");
    assert!(printed.contains("1 input done, 1 done before"), "{printed}");
}

#[test]
fn a_part_of_the_slurm_array_whose_node_loses_power_continues_on_another() {
    let Some(mut cluster) = SlurmCluster::start() else { return };
    let array = cluster.submit();
    cluster.until_half_done();
    let part = format!("{array}_3");
    let node = cluster.ask(&format!("squeue -h -j {part} -o %N"));
    assert_eq!(cluster.state_of(&part), "R");
    cluster.nodes.retain(|host| host.name() != node);
    assert_eq!(cluster.nodes.len(), 1, "no node {node}");
    cluster.release_last_log();
    cluster.until_all_ended();
    cluster.site.expect(&cluster.expected);
    let printed = cluster.printed(3);
    assert!(printed.contains("1 input done, 1 done before"), "{printed}");
}

#[test]
fn a_slurm_array_with_a_part_that_reached_its_time_limit_is_submitted_again() {
    let Some(cluster) = SlurmCluster::start() else { return };
    let array = cluster.submit();
    cluster.until_half_done();
    let part = format!("{array}_3");
    cluster.ask(&format!("scontrol update JobId={part} TimeLimit=1"));
    // With the merge, which has nothing to wait for.
    cluster.until_all_ended();
    assert!(!cluster.site.workdir.at("data/tables/_manifest.json").exists());
    let printed = cluster.printed(3);
    assert!(printed.contains("1 input left, of which nothing was published"), "{printed}");
    cluster.release_last_log();
    cluster.submit();
    cluster.until_all_ended();
    cluster.site.expect(&cluster.expected);
    let printed = cluster.printed(3);
    assert!(printed.contains("1 input done, 1 done before"), "{printed}");
}
