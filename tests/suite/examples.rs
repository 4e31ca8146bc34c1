//! The files in `docs/examples/` work: scripts run with stand-ins for cluster programs, which run
//! commands on this machine, and those for Slurm also on a real one; units and manifests are parsed
//! strictly. Starts no scheduler and no executor of ours.

mod slurm;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, drive, log, peer_tool, report_skip, root};

/// The number of logs, fewer than the parts of any example.
const LOGS: u64 = 5;

/// Stands in for `sbatch`: runs the tasks immediately, one by one.
const SBATCH: &str = r#"#!/bin/sh
set -eu
echo "sbatch $*" >>"$CALLS"
for word in "$@"; do script=$word; done
export SLURM_CPUS_PER_TASK=$(sed -n 's/^#SBATCH --cpus-per-task=//p' "$script")
SLURM_ARRAY_TASK_COUNT=$(sed -n 's/^#SBATCH --array=1-\([0-9]*\)$/\1/p' "$script")
if [ -n "$SLURM_ARRAY_TASK_COUNT" ]; then
    export SLURM_ARRAY_TASK_COUNT
    for SLURM_ARRAY_TASK_ID in $(seq "$SLURM_ARRAY_TASK_COUNT"); do
        export SLURM_ARRAY_TASK_ID
        sh "$script" 1>&2
    done
else
    sh "$script" 1>&2
fi
wc -l <"$CALLS"
"#;

/// Stands in for `ssh`: runs the command on this machine.
const SSH: &str = r#"#!/bin/sh
echo "ssh $*" >>"$CALLS"
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
"#;

/// Stands in for `parallel`: runs the commands on this machine, one by one.
const PARALLEL: &str = r#"#!/bin/sh
echo "parallel $*" >>"$CALLS"
while [ "${1#--}" != "$1" ]; do shift 2; done
command=$1
shift
[ "$1" = ":::" ] || exit 9
shift
for each in "$@"; do
    sh -c "$(echo "$command" | sed "s/{}/$each/g")" || exit
done
"#;

/// A folder with logs, the examples, and stand-ins for cluster programs.
struct Site {
    workdir: Folder,
}

impl Site {
    fn new() -> Self {
        let workdir = Folder::new();
        for folder in ["bin", "data", "data/logs"] {
            fs::create_dir(workdir.at(folder)).unwrap();
        }
        for n in 0..LOGS {
            workdir.write(&format!("data/logs/{n}.lcm"), log(&drive(n + 1, 200 + 100 * n as i64)));
        }
        symlink(crate::PROGRAM, workdir.at("bin/sluice")).unwrap();
        for (name, text) in [("sbatch", SBATCH), ("ssh", SSH), ("parallel", PARALLEL)] {
            let path = workdir.write(&format!("bin/{name}"), text);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        copy(&root().join("docs/examples"), &workdir.at("examples"));
        Self { workdir }
    }

    /// A command that finds these programs, and the logs.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.workdir.path()).envs(self.environment());
        command
    }

    fn environment(&self) -> [(&str, OsString); 3] {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.workdir.at("bin").display());
        let file = |name: &str| self.workdir.at(name).into_os_string();
        [("PATH", path.into()), ("DATA", file("data")), ("CALLS", file("calls"))]
    }

    fn run(&self, program: &str, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::from_output(self.command(program).args(arguments).output().unwrap())
    }

    /// The outputs of a single run on this machine; they are removed again.
    fn expected_outputs(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let run = ["run", "examples/drives-to-tables.toml", "--memory", "2GiB"];
        self.run("sluice", &run).expect(0);
        let expected = self.tables();
        assert!(expected.len() as u64 > LOGS, "{:?}", expected.keys());
        fs::remove_dir_all(self.workdir.at("data/tables")).unwrap();
        expected
    }

    fn tables(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        gather(&self.workdir.at("data/tables"), &mut files);
        files
    }

    /// Checks that the outputs are these, byte for byte, and that nothing else exists.
    #[track_caller]
    fn expect(&self, expected: &BTreeMap<PathBuf, Vec<u8>>) {
        let there = self.tables();
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&there), names(expected));
        for (path, bytes) in expected {
            assert!(there[path] == *bytes, "{} differs", path.display());
        }
    }

    fn calls(&self) -> Vec<String> {
        let calls = String::from_utf8(self.workdir.read("calls")).unwrap();
        calls.lines().map(str::to_owned).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn gather(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, files);
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

#[test]
fn the_slurm_array_gives_the_outputs_of_a_single_run() {
    let site = Site::new();
    let expected = site.expected_outputs();
    let printed = site.run("sh", &["examples/slurm/submit.sh"]).expect(0).text();
    site.expect(&expected);
    assert_eq!(printed, "array 1 converts, then 2 merges the records\n");
    let merge = "--parsable --dependency=afterok:1 --kill-on-invalid-dep=yes merge.sbatch";
    let calls = ["--parsable convert.sbatch", merge];
    assert_eq!(site.calls(), calls.map(|call| format!("sbatch {call}")));
    // As after a cancelled array: existing outputs are kept.
    site.run("sh", &["examples/slurm/submit.sh"]).expect(0);
    site.expect(&expected);
}

#[test]
fn a_damaged_log_does_not_fail_its_part_of_the_slurm_array() {
    let site = Site::new();
    let whole = log(&drive(9, 300));
    site.workdir.write("data/logs/3.lcm", &whole[..whole.len() - 9]);
    let run = ["run", "examples/drives-to-tables.toml", "--memory", "2GiB"];
    site.run("sluice", &run).expect(3);
    let expected = site.tables();
    fs::remove_dir_all(site.workdir.at("data/tables")).unwrap();
    site.run("sh", &["examples/slurm/submit.sh"]).expect(0);
    site.expect(&expected);
}

#[test]
fn a_log_that_fails_fails_its_part_of_the_slurm_array() {
    let site = Site::new();
    fs::create_dir(site.workdir.at("data/tables")).unwrap();
    site.workdir.write("data/tables/3", "in the way of its tables");
    let ran = site.run("sh", &["examples/slurm/submit.sh"]);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(site.calls().len(), 1, "nothing is merged");
}

#[test]
fn hosts_by_ssh_give_the_outputs_of_a_single_run() {
    let site = Site::new();
    let expected = site.expected_outputs();
    site.run("sh", &["examples/ssh/convert.sh", "alpha", "beta", "gamma"]).expect(0);
    site.expect(&expected);
    let calls = site.calls();
    let hosts: BTreeSet<&str> = calls.iter().filter_map(|call| call.split(' ').nth(2)).collect();
    assert_eq!(hosts, BTreeSet::from(["alpha", "beta", "gamma"]));
}

#[test]
fn gnu_parallel_gives_the_outputs_of_a_single_run() {
    let site = Site::new();
    let expected = site.expected_outputs();
    let mut command = site.command("sh");
    command.arg("examples/ssh/parallel.sh").env("HOSTS", "alpha,beta").env("PARTS", "7");
    ProgramOutput::from_output(command.output().unwrap()).expect(0);
    site.expect(&expected);
}

/// The documents of the Kubernetes files; `None`, with a message, if no YAML reader is installed.
fn manifests(names: &[&str]) -> Option<Vec<Value>> {
    let folder = root().join("docs/examples/kubernetes");
    // The Python of the reference tools has modules that the system's may lack.
    let peer = Some(peer_tool("python3")).filter(|python| python.exists());
    let python = peer.unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.arg("-B").arg(root().join("tests/suite/peers_py/yaml_to_json.py"));
    command.args(names.iter().map(|name| folder.join(name)));
    let read = command.output().ok().filter(|output| output.status.code() != Some(7));
    let Some(read) = read else {
        report_skip("there is no python3 with PyYAML, which reads the Kubernetes files");
        return None;
    };
    let read = ProgramOutput::from_output(read).expect(0);
    Some(serde_json::from_slice(&read.stdout).unwrap())
}

fn pod(manifest: &Value) -> Option<&Value> {
    let spec = &manifest["spec"]["template"]["spec"];
    spec.is_object().then_some(spec)
}

/// The command and the environment of the container in this manifest.
fn container(manifest: &Value) -> (Vec<String>, BTreeMap<String, String>) {
    let container = &pod(manifest).unwrap()["containers"][0];
    let texts = |value: &Value| {
        let texts = value.as_array().unwrap().iter();
        texts.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let words = [texts(&container["command"]), texts(&container["args"])].concat();
    let pairs = container["env"].as_array().unwrap().iter().filter_map(|pair| {
        Some((pair["name"].as_str().unwrap().to_owned(), pair["value"].as_str()?.to_owned()))
    });
    (words, pairs.collect())
}

#[test]
fn the_indexed_job_gives_the_outputs_of_a_single_run() {
    let Some(jobs) = manifests(&["convert.yaml", "merge.yaml"]) else { return };
    let site = Site::new();
    let expected = site.expected_outputs();
    for job in &jobs {
        assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
        assert_eq!(pod(job).unwrap()["restartPolicy"], "Never");
        let (words, mut environment) = container(job);
        let is_indexed = job["spec"]["completionMode"] == "Indexed";
        let completions = job["spec"]["completions"].as_u64().unwrap_or(1);
        if is_indexed {
            assert_eq!(environment["PARTS"], completions.to_string());
            assert!(job["spec"]["backoffLimitPerIndex"].is_u64());
        }
        environment.insert("DATA".into(), site.workdir.at("data").display().to_string());
        environment.insert("PIPELINES".into(), site.workdir.at("examples").display().to_string());
        for index in 0..completions {
            let mut command = site.command(&words[0]);
            command.args(&words[1..]).envs(&environment);
            command.env("JOB_COMPLETION_INDEX", index.to_string());
            ProgramOutput::from_output(command.output().unwrap()).expect(0);
        }
    }
    site.expect(&expected);
}

#[test]
fn a_wrong_pipeline_ends_the_indexed_job_at_once() {
    let Some(jobs) = manifests(&["convert.yaml"]) else { return };
    let site = Site::new();
    site.workdir.write("drives-to-tables.toml", "[sources.log]\nplugin = \"no such plugin\"\n");
    let (words, environment) = container(&jobs[0]);
    let mut command = site.command(&words[0]);
    command.args(&words[1..]).envs(&environment).env("PIPELINES", site.workdir.path());
    let ran =
        ProgramOutput::from_output(command.env("JOB_COMPLETION_INDEX", "0").output().unwrap())
            .expect(2);
    assert!(ran.stderr.contains("no such plugin"), "{}", ran.stderr);
    let fails = &jobs[0]["spec"]["podFailurePolicy"]["rules"][1];
    assert_eq!(
        (&fails["action"], &fails["onExitCodes"]["values"][0]),
        (&"FailJob".into(), &2.into())
    );
}

#[test]
fn everything_that_kubernetes_files_name_exists() {
    let names: Vec<String> = fs::read_dir(root().join("docs/examples/kubernetes"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(all) = manifests(&names) else { return };
    let named = |kind: &str| -> BTreeSet<&str> {
        let of_kind = all.iter().filter(|manifest| manifest["kind"] == kind);
        of_kind.map(|manifest| manifest["metadata"]["name"].as_str().unwrap()).collect()
    };
    for manifest in &all {
        let Some(pod) = pod(manifest) else { continue };
        let labels = &manifest["spec"]["template"]["metadata"]["labels"];
        let selected = &manifest["spec"]["selector"]["matchLabels"];
        assert!(selected.is_null() || selected == labels, "{manifest}");
        let none = Vec::new();
        let volumes = pod["volumes"].as_array().unwrap_or(&none);
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["image"], "registry.example/sluice:1");
            for mount in container["volumeMounts"].as_array().unwrap_or(&none) {
                assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
            }
        }
        for volume in volumes {
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                assert!(named("PersistentVolumeClaim").contains(claim), "{claim}");
            }
        }
        let (words, environment) = container(manifest);
        if let Some(scheduler) = environment.get("SCHEDULER") {
            let (service, port) = scheduler.split_once(':').unwrap();
            assert!(named("Service").contains(service), "{scheduler}");
            assert_eq!(port, "50050");
        }
        assert_eq!(words[..2], ["/bin/sh", "-c"]);
    }
}

/// The settings of a systemd file, by section and key. Anything that is neither a section, a
/// setting nor a comment fails.
fn unit(text: &str) -> BTreeMap<(String, String), String> {
    let (mut section, mut settings) = (String::new(), BTreeMap::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no setting: {line}"));
        let known = ["Unit", "Service", "Install", ""].contains(&section.as_str());
        assert!(known && key.chars().all(|c| c.is_alphanumeric() || c == '_'), "{line}");
        settings.insert((section.clone(), key.to_owned()), value.to_owned());
    }
    settings
}

#[test]
fn systemd_units_are_given_every_value_they_ask_for() {
    let folder = root().join("docs/examples/systemd");
    let read = |name: &str| unit(&fs::read_to_string(folder.join(name)).unwrap());
    let given: BTreeSet<String> = read("cluster.conf").into_keys().map(|(_, key)| key).collect();
    let mut asked = BTreeSet::new();
    for name in ["sluice-scheduler.service", "sluice-executor.service"] {
        let unit = read(name);
        let service = |key: &str| unit[&("Service".to_owned(), key.to_owned())].clone();
        assert_eq!(service("EnvironmentFile"), "/etc/sluice/cluster.conf");
        let start = service("ExecStart");
        assert!(start.starts_with("/usr/local/bin/sluice cluster "), "{start}");
        let values = start.split("${").skip(1).map(|rest| rest.split('}').next().unwrap());
        asked.extend(values.map(str::to_owned));
    }
    assert_eq!(asked, given);
}
