//! The guides on SQL and clusters: runs every command in them, and compares the output with the
//! text below it. Everything for several hosts runs on this machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, drive, log, report_skip, root};

/// A step of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DocumentStep {
    /// Write this file.
    Write { path: String, text: String },
    /// Run this command.
    Type(String),
    /// Start this command on a host, and keep it running.
    Start(String),
    /// Expect this output of the last command.
    See(String),
}

/// The steps of a document, in order. Code blocks in languages other than `sh` are skipped.
fn steps(document: &str) -> Vec<DocumentStep> {
    let (mut steps, mut place) = (Vec::new(), "");
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            place = comment.strip_suffix(" -->").unwrap();
            continue;
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let box_ = lines.by_ref().take_while(|line| *line != "```");
        let text: String = box_.map(|line| format!("{line}\n")).collect();
        match (std::mem::take(&mut place).split_once(": "), language) {
            (Some(("file", path)), _) => {
                steps.push(DocumentStep::Write { path: path.into(), text })
            }
            (Some(("stays", _)), "sh") => steps.push(DocumentStep::Start(text)),
            (None, "sh") => steps.push(DocumentStep::Type(text)),
            (None, "text") => steps.push(DocumentStep::See(text)),
            _ => {}
        }
    }
    steps
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// Follows a document in a folder of its own. Stops what is running when dropped.
struct DocumentReader {
    folder: Folder,
    running: Vec<Child>,
    /// Text of the document, and what replaces it.
    replacements: Vec<(String, String)>,
    last_output: String,
}

impl DocumentReader {
    fn new() -> Self {
        let folder = Folder::new();
        for name in ["bin", "data", "data/logs"] {
            fs::create_dir(folder.at(name)).unwrap();
        }
        symlink(crate::PROGRAM, folder.at("bin/sluice")).unwrap();
        let example = root().join("docs/examples/drives-to-tables.toml");
        fs::copy(example, folder.at("drives-to-tables.toml")).unwrap();
        Self { folder, running: Vec::new(), replacements: Vec::new(), last_output: String::new() }
    }

    fn shell(&self, text: &str) -> Command {
        let text =
            self.replacements.iter().fold(text.to_owned(), |text, (a, b)| text.replace(a, b));
        let path =
            format!("{}:{}", self.folder.at("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-eu", "-c", &text]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PATH", path).env("DATA", self.folder.at("data"));
        command.env("XDG_CACHE_HOME", self.folder.at("cache"));
        command
    }

    fn follow(&mut self, step: DocumentStep) {
        match step {
            DocumentStep::Write { path, text } => drop(self.folder.write(&path, text)),
            DocumentStep::Type(text) => {
                let ran = ProgramOutput::from_output(self.shell(&text).output().unwrap());
                assert_eq!(ran.code, Some(0), "{text}\n{}\n{}", ran.text(), ran.stderr);
                self.last_output = ran.text();
            }
            DocumentStep::See(text) => assert_eq!(self.last_output, text),
            DocumentStep::Start(text) => self.start(&format!("exec {text}")),
        }
    }

    fn replace(&mut self, stands: &str, read: &str) {
        self.replacements.push((stands.to_owned(), read.to_owned()));
    }

    /// Writes a secret, with the permissions that Kubernetes gives it. Returns its path.
    fn write_secret(&self) -> String {
        let path = self.folder.write("secret", format!("{}\n", "0123456789abcdef".repeat(4)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        path.display().to_string()
    }

    /// Starts a command that keeps running, and waits until it is ready.
    fn start(&mut self, text: &str) {
        let message = self.folder.at(&format!("said-{}", self.running.len()));
        let mut command = self.shell(text);
        command.stderr(fs::File::create(&message).unwrap());
        self.running.push(command.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        let ready = loop {
            let output = fs::read_to_string(&message).unwrap();
            let ready =
                output.lines().find(|l| l.starts_with("listening") || l.starts_with("joined"));
            if let Some(line) = ready {
                break line.to_owned();
            }
            assert!(Instant::now() < end, "{text}\n{output}");
            std::thread::sleep(Duration::from_millis(20));
        };
        if let Some(address) = ready.strip_prefix("listening on ") {
            self.replace("10.0.0.1:50050", address);
        }
    }
}

impl Drop for DocumentReader {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn the_guide_on_sql_works_as_printed() {
    let mut reader = DocumentReader::new();
    for step in steps(&document("query.md")) {
        reader.follow(step);
    }
    let fast = String::from_utf8(reader.folder.read("fast.jsonl")).unwrap();
    assert!(fast.lines().count() > 0 && fast.contains("north"), "{fast:.300}");
}

#[test]
fn the_guide_on_clusters_produces_tables() {
    let mut reader = DocumentReader::new();
    for n in 0..4 {
        reader.folder.write(&format!("data/logs/{n}.lcm"), log(&drive(n + 1, 300)));
    }
    // The scheduler picks a free port, and prints it.
    reader.replace("--listen 10.0.0.1:50050", "--listen 127.0.0.1:0");
    for step in steps(&document("cluster.md")) {
        // Shards write the same output again: empty the folder.
        if matches!(&step, DocumentStep::Type(text) if text.contains("--shard")) {
            fs::remove_dir_all(reader.folder.at("data/tables")).unwrap();
        }
        reader.follow(step);
    }
    let tables = reader.folder.at("data/tables");
    assert!(tables.join("_manifest.json").exists() && tables.join("3/channel=A").exists());
}

#[test]
fn systemd_units_start_a_cluster() {
    let mut reader = DocumentReader::new();
    let folder = root().join("docs/examples/systemd");
    let values = fs::read_to_string(folder.join("cluster.conf")).unwrap();
    let values: String = values
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}; "))
        .collect();
    let work = reader.folder.at("work").display().to_string();
    let secret = reader.write_secret();
    reader.replace("/etc/sluice/secret", &secret);
    reader.replace("LISTEN=10.0.0.1:50050", "LISTEN=127.0.0.1:0");
    reader.replace("/var/lib/sluice", &work);
    reader.replace("/usr/local/bin/sluice", "sluice");
    for name in ["sluice-scheduler.service", "sluice-executor.service"] {
        let unit = fs::read_to_string(folder.join(name)).unwrap();
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        reader.start(&format!("{values} exec {start}"));
    }
    let status = format!("sluice cluster status --scheduler 10.0.0.1:50050 --secret-file {secret}");
    reader.follow(DocumentStep::Type(status));
    assert!(
        reader.last_output.contains("executors: 1, units at a time: 8"),
        "{}",
        reader.last_output
    );
}

/// The commands of the containers in a Kubernetes file; `None`, with a note, if no YAML parser is
/// installed.
fn commands_of(name: &str) -> Option<Vec<String>> {
    let script = root().join("tests/suite/peers_py/yaml_to_json.py");
    let file = root().join("docs/examples/kubernetes").join(name);
    let read = Command::new("python3").arg("-B").args([script, file]).output().ok()?;
    let Ok(Value::Array(all)) = serde_json::from_slice(&read.stdout) else {
        report_skip("there is no python3 with PyYAML, which reads the Kubernetes files");
        return None;
    };
    let args = |manifest: &Value| {
        let container = &manifest["spec"]["template"]["spec"]["containers"][0];
        Some(container["args"][0].as_str()?.to_owned())
    };
    Some(all.iter().filter_map(args).collect())
}

#[test]
fn the_kubernetes_files_start_a_cluster_and_a_run() {
    let (Some(cluster), Some(run)) = (commands_of("cluster.yaml"), commands_of("run.yaml")) else {
        return;
    };
    let [scheduler, executor] = &cluster[..] else { panic!("{cluster:?}") };
    let mut reader = DocumentReader::new();
    for n in 0..3 {
        reader.folder.write(&format!("data/logs/{n}.lcm"), log(&drive(n + 1, 200)));
    }
    let folder = reader.folder.path().display().to_string();
    let secret = reader.write_secret();
    let values = format!(
        "export LISTEN=127.0.0.1:0 ADVERTISE=127.0.0.1 SCHEDULER=10.0.0.1:50050 SECRET={secret}; \
         export WORK={folder}/work POD=pod-1 PIPELINES={folder}; "
    );
    reader.start(&(values.clone() + scheduler));
    reader.start(&(values.clone() + executor));
    reader.follow(DocumentStep::Type(values + &run[0]));
    assert!(reader.folder.at("data/tables/_manifest.json").exists());
}

#[test]
fn links_in_the_documents_work() {
    let docs = root().join("docs");
    for name in ["query.md", "cluster.md"] {
        let document = document(name);
        let targets = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let targets = targets.filter(|to| !to.starts_with('#')).map(|to| docs.join(to));
        let missing: Vec<PathBuf> = targets.filter(|to| !to.exists()).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

#[test]
fn commands_of_the_readme_exist_in_the_full_program() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let boxes: Vec<&str> = readme.split("<!-- not run: needs the full program").skip(1).collect();
    let lines = boxes.iter().flat_map(|text| text.split("```").nth(1).unwrap().lines());
    let lines: Vec<&str> = lines.filter_map(|line| line.strip_prefix("sluice ")).collect();
    assert!(boxes.len() == 2 && lines.len() > 6, "{lines:?}");
    let reader = DocumentReader::new();
    for line in lines {
        let command = format!("sluice {} --help", line.split(" #").next().unwrap());
        let ran = ProgramOutput::from_output(reader.shell(&command).output().unwrap());
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
}
