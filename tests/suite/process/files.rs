//! Outputs appear complete or not at all, and inputs are never written.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::kit::{Folder, ProgramOutput, drive, log, report_skip, run_sluice, sluice};

pub(super) fn folder_with_log() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 300)));
    folder
}

/// Runs a command that must fail, and checks that the folder is unchanged.
#[track_caller]
pub(super) fn assert_fails_unchanged(folder: &Folder, arguments: &[&str], says: &str) {
    let before: Vec<_> = folder.names().into_iter().map(|name| look(folder, name)).collect();
    run_sluice(folder, arguments).expect(1).expect_stderr(says);
    let after: Vec<_> = folder.names().into_iter().map(|name| look(folder, name)).collect();
    assert!(before == after, "before: {:?}; now: {:?}", names(&before), names(&after));
}

fn look(folder: &Folder, name: String) -> (String, Option<Vec<u8>>) {
    let path = folder.at(&name);
    let bytes = path.is_file().then(|| fs::read(path).unwrap());
    (name, bytes)
}

fn names(files: &[(String, Option<Vec<u8>>)]) -> Vec<&str> {
    files.iter().map(|(name, _)| &name[..]).collect()
}

#[test]
fn a_missing_input_is_named() {
    let folder = folder_with_log();
    assert_fails_unchanged(&folder, &["convert", "nowhere.lcm", "--to", "out.lcm"], "nowhere.lcm");
    assert_fails_unchanged(
        &folder,
        &["convert", "in.lcm", "nowhere.lcm", "--to", "out.lcm"],
        "nowhere.lcm",
    );
    assert_fails_unchanged(&folder, &["convert", "no*.lcm", "--to", "out.lcm"], "no*.lcm");
}

#[test]
fn a_folder_in_place_of_a_file_or_the_reverse_is_named() {
    let folder = folder_with_log();
    fs::create_dir(folder.at("dir.lcm")).unwrap();
    assert_fails_unchanged(&folder, &["convert", "dir.lcm", "--to", "out.lcm"], "dir.lcm");
    for sink in ["lcm-log", "jsonl"] {
        let taken = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [sinks.out]\nplugin = \"{sink}\"\nfrom = \"log\"\npath = \"dir.lcm\"\n"
        );
        folder.write("taken.toml", taken);
        assert_fails_unchanged(&folder, &["run", "taken.toml", "--overwrite"], "dir.lcm");
    }
    folder.write("file", "mine");
    for to in ["file/", "file/tables/", "file/out.lcm"] {
        assert_fails_unchanged(&folder, &["convert", "in.lcm", "--to", to], "is a file, not a");
    }
}

#[test]
fn an_input_that_may_not_be_read_is_named() {
    let folder = folder_with_log();
    fs::set_permissions(folder.at("in.lcm"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(folder.at("in.lcm")).is_ok() {
        return report_skip("a file that may not be read: this user may read any");
    }
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm"])
        .expect(1)
        .expect_stderr("permission denied");
}

#[test]
fn a_folder_that_may_not_be_written_is_named() {
    let folder = folder_with_log();
    fs::create_dir(folder.at("closed")).unwrap();
    fs::set_permissions(folder.at("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(folder.at("closed/try"), "").is_ok() {
        return report_skip("a folder that may not be written: this user may write any");
    }
    assert_fails_unchanged(
        &folder,
        &["convert", "in.lcm", "--to", "closed/out.lcm"],
        "permission denied",
    );
    // The records of a batch are not what the user named.
    for part in [&[][..], &["--shard", "1/1"]] {
        let batch = ["convert", "in.lcm", "--to", "closed/{stem}.csv"];
        assert_fails_unchanged(
            &folder,
            &[&batch[..], part].concat(),
            "cannot write to the folder closed: permission denied; make it writable, or choose \
             another folder for the outputs",
        );
    }
}

#[test]
fn a_file_in_place_of_a_folder_is_named() {
    let folder = folder_with_log();
    assert_fails_unchanged(&folder, &["convert", "in.lcm", "--to", "in.lcm/out.lcm"], "in.lcm");
}

#[test]
fn an_output_that_exists_is_left_as_it_is() {
    let folder = folder_with_log();
    folder.write("out.lcm", "mine");
    assert_fails_unchanged(&folder, &["convert", "in.lcm", "--to", "out.lcm"], "--overwrite");
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm", "--overwrite"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn an_input_is_never_written() {
    let folder = folder_with_log();
    symlink("in.lcm", folder.at("soft.lcm")).unwrap();
    fs::hard_link(folder.at("in.lcm"), folder.at("hard.lcm")).unwrap();
    fs::create_dir(folder.at("sub")).unwrap();
    for output in ["in.lcm", "./in.lcm", "sub/../in.lcm", "soft.lcm", "hard.lcm"] {
        let to =
            |options: &[&'static str]| [&["convert", "in.lcm", "--to", output], options].concat();
        assert_fails_unchanged(&folder, &to(&["--overwrite"]), "also an input");
        assert_fails_unchanged(&folder, &to(&["--sink-option", "append=true"]), "also an input");
    }
}

/// A path through a folder that does not exist when the run starts.
const DETOUR: &str = "new/deep/../..";

#[test]
fn an_output_that_is_an_input_is_found_through_folders_to_be_created() {
    let folder = folder_with_log();
    for to in ["in.lcm.zst", "in.parquet", "tables/"] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", to]).expect(0);
    }
    symlink("in.lcm", folder.at("soft.lcm")).unwrap();
    fs::hard_link(folder.at("in.lcm"), folder.at("hard.lcm")).unwrap();
    let cases = [
        ("in.lcm", "in.lcm", "--overwrite"),
        ("in.lcm", "in.lcm", "--resume"),
        ("in.lcm", "soft.lcm", "--overwrite"),
        ("soft.lcm", "hard.lcm", "--overwrite"),
        ("in.lcm.zst", "in.lcm.zst", "--overwrite"),
        ("in.parquet", "in.parquet", "--overwrite"),
        ("tables/", "tables/", "--overwrite"),
        ("in.lcm", "in.lcm", "--sink-option=append=true"),
    ];
    for (from, to, how) in cases {
        let to = format!("{DETOUR}/{to}");
        let convert = ["convert", from, "--to", &to, "--end", "+1", how];
        assert_fails_unchanged(&folder, &convert, "the output is also an input");
        assert_fails_unchanged(&folder, &convert[..convert.len() - 1], "");
    }
}

#[test]
fn pipelines_and_batches_find_inputs_through_folders_to_be_created() {
    let folder = Folder::new();
    let inputs = ["a/b.lcm", "b/a.lcm"];
    for (n, path) in inputs.iter().enumerate() {
        fs::create_dir(folder.at(&path[..1])).unwrap();
        folder.write(path, log(&drive(n as u64, 100)));
    }
    let before = inputs.map(|path| folder.read(path));
    // The input of the same unit, and of another one.
    for target in ["{parent}/{stem}.lcm", "{stem}/{parent}.lcm"] {
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"[ab]/*.lcm\"\n[stages.keep]\n\
             plugin = \"limit\"\n\
             from = \"log\"\nevents = 5\n[sinks.out]\nplugin = \"lcm-log\"\nfrom = \"keep\"\n\
             path = \"out/new/../../{target}\"\n"
        );
        folder.write("batch.toml", text);
        for how in ["--overwrite", "--resume"] {
            let run = ["run", "batch.toml", "--keep-going", "--jobs", "1", how];
            run_sluice(&folder, &run).expect(1).expect_stderr("also an input");
            assert!(inputs.map(|path| folder.read(path)) == before, "{target} {how}");
        }
    }
}

#[test]
fn files_that_a_pipeline_is_made_from_are_never_written() {
    let folder = folder_with_log();
    fs::create_dir_all(folder.at("types/sub")).unwrap();
    for name in ["types/pose.lcm", "types/sub/pose.lcm"] {
        folder.write(name, "struct pose_t { int64_t utime; }\n");
    }
    folder.write("expect.toml", "[log]\ndamage = 0\n");
    symlink("expect.toml", folder.at("link.lcm")).unwrap();
    let text = |types: &str, target: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = [{types}]\n\
             [stages.good]\nplugin = \"expect\"\nfrom = \"typed\"\nfile = \"expect.toml\"\n\
             [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"good\"\npath = \"{target}\"\n"
        )
    };
    for types in ["\"types/pose.lcm\", \"types/sub/pose.lcm\"", "\"types/**/*.lcm\"", "\"types\""] {
        for target in ["run.toml", "link.lcm", "types/pose.lcm", "types/sub/pose.lcm"] {
            folder.write("run.toml", text(types, target));
            let run = ["run", "run.toml", "--overwrite"];
            assert_fails_unchanged(&folder, &run, "the output is also an input");
        }
        folder.write("run.toml", text(types, "out.lcm"));
        let before = crate::batch::tree(&folder.at("."));
        for report in ["run.toml", "link.lcm", "types/pose.lcm", "types/sub/pose.lcm", "in.lcm"] {
            run_sluice(&folder, &["run", "run.toml", "--report", report])
                .expect(2)
                .expect_stderr("would replace an input");
        }
        assert!(crate::batch::tree(&folder.at(".")) == before);
    }
    // A batch reads the same files for each of its units.
    folder.write("run.toml", text("\"types\"", "types/sub/{stem}.lcm"));
    folder.write("pose.lcm", folder.read("in.lcm"));
    let batch = folder.read("run.toml");
    let batch = String::from_utf8(batch).unwrap().replace("in.lcm", "pose.lcm");
    folder.write("run.toml", batch);
    let run = ["run", "run.toml", "--overwrite"];
    assert_fails_unchanged(&folder, &run, "the output is also an input");
}

#[test]
fn results_never_replace_the_description_of_a_log() {
    let folder = folder_with_log();
    let description = "plugin = \"lcm-log\"\n";
    folder.write("rig.toml", description);
    folder.write("expect.toml", "[log]\ndamage = 0\n");
    let play = ["play", "in.lcm", "--interface", "no-such-card", "--report", "rig.toml"];
    let check = ["check-log", "in.lcm", "--expect", "expect.toml", "--junit", "rig.toml"];
    for verb in [&play[..], &check] {
        let ran = run_sluice(&folder, &[verb, &["--describe", "rig.toml"]].concat());
        assert_eq!(folder.read("rig.toml"), description.as_bytes(), "{verb:?}");
        ran.expect(2).expect_stderr("would replace an input: rig.toml");
    }
}

#[test]
fn an_output_folder_is_not_cleared_while_it_is_an_input() {
    let folder = folder_with_log();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    let tables = crate::batch::tree(&folder.at("tables"));
    // One of many tables: the new dataset has no file of that name.
    let table = tables.keys().find(|name| name.ends_with(".parquet")).unwrap();
    let table = format!("tables/{table}");
    let into = ["convert", &table, "--to", "tables/", "--end", "1970-01-01T00:00:00Z"];
    for how in ["--overwrite", "--resume"] {
        run_sluice(&folder, &[&into[..], &[how]].concat())
            .expect(1)
            .expect_stderr("the output is also an input");
        assert!(crate::batch::tree(&folder.at("tables")) == tables);
    }
}

#[test]
fn two_sinks_cannot_write_one_file() {
    for other in ["out.lcm", "./out.lcm", "sub/../out.lcm", "link.lcm"] {
        let folder = folder_with_log();
        fs::create_dir(folder.at("sub")).unwrap();
        symlink("out.lcm", folder.at("link.lcm")).unwrap();
        let sink = |name: &str, path: &str| {
            format!("[sinks.{name}]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"{path}\"\n")
        };
        let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";
        folder.write("two.toml", source.to_owned() + &sink("a", "out.lcm") + &sink("b", other));
        let tried = run_sluice(&folder, &["run", "two.toml"]);
        assert!(matches!(tried.code, Some(1 | 2)), "{other}: {:?} {}", tried.code, tried.stderr);
        let left = folder.names();
        assert_eq!(left, ["in.lcm", "link.lcm", "sub", "two.toml"], "{other}");
    }
}

#[test]
fn a_link_is_followed_and_stays() {
    let folder = folder_with_log();
    fs::create_dir(folder.at("real")).unwrap();
    folder.write("real/out.lcm", "old");
    symlink("real/out.lcm", folder.at("out.lcm")).unwrap();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm", "--overwrite"]).expect(0);
    assert!(folder.at("out.lcm").is_symlink());
    assert!(folder.read("real/out.lcm") == folder.read("in.lcm"));
}

#[test]
fn folders_on_the_way_are_made_and_taken_away_if_it_fails() {
    let folder = folder_with_log();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "a/b/out.lcm"]).expect(0);
    assert!(folder.at("a/b/out.lcm").is_file());
    // The second input does not exist, which is only noticed while reading the first.
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"cut.lcm\"\non_damage = \"stop\"\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"c/d/out.lcm\"\n";
    folder.write("stop.toml", text);
    folder.write("cut.lcm", &folder.read("in.lcm")[..5_000]);
    assert_fails_unchanged(&folder, &["run", "stop.toml"], "could not be read");
}

#[test]
fn a_full_device_is_reported_and_nothing_is_published() {
    let folder = folder_with_log();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [sinks.full]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"/dev/full\"\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n";
    folder.write("full.toml", text);
    assert_fails_unchanged(&folder, &["run", "full.toml"], "no space left");
    let to_device = ["convert", "in.lcm", "--to", "/dev/full", "--as", "jsonl"];
    assert_fails_unchanged(&folder, &to_device, "no space left");
}

/// A small disk mounted at `disk`, until dropped.
struct SmallMount<'f>(&'f Folder);

impl<'f> SmallMount<'f> {
    fn mount(folder: &'f Folder) -> Option<Self> {
        fs::create_dir(folder.at("disk")).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(folder.at("disk"))
            .output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallMount<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.at("disk")).status().unwrap();
    }
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_left_on_it() {
    let folder = folder_with_log();
    let Some(disk) = SmallMount::mount(&folder) else {
        return report_skip("a disk that fills up: this user may not mount one");
    };
    for name in ["disk/out.lcm", "disk/deep/out.lcm"] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", name])
            .expect(1)
            .expect_stderr("no space left");
        assert_eq!(fs::read_dir(folder.at("disk")).unwrap().count(), 0, "{name}");
    }
    drop(disk);
}

#[test]
fn two_sinks_of_one_file_are_a_mistake_in_the_pipeline() {
    let folder = folder_with_log();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                [sinks.one]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n\
                [sinks.other]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"./out.lcm\"\n";
    folder.write("two.toml", text);
    for command in ["check", "run"] {
        run_sluice(&folder, &[command, "two.toml"])
            .expect(2)
            .expect_stderr("two.toml:11")
            .expect_stderr("`one` and `other` write to one file");
    }
    // So is standard output, where the bytes of both would be mixed.
    folder.write("two.toml", text.replace("./out.lcm", "-").replace("out.lcm", "-"));
    let told = "`one` and `other` write to standard output";
    run_sluice(&folder, &["check", "two.toml"]).expect(2).expect_stderr(told);
    let quarantine = text
        .replace("\"in.lcm\"", "\"in.lcm\"\non_damage = \"quarantine\"\nquarantine = \"-\"")
        .replace("./out.lcm", "-");
    folder.write("two.toml", quarantine);
    let told = "`log` and `other` write to standard output";
    run_sluice(&folder, &["check", "two.toml"]).expect(2).expect_stderr(told);
    folder.write("two.toml", text.replace("./out.lcm", "out.lcm/x.lcm"));
    let told = "`one` writes a file where `other` needs a folder";
    run_sluice(&folder, &["check", "two.toml"]).expect(2).expect_stderr(told);
    let within = text.replace("\"jsonl\"", "\"files\"").replace("./out.lcm", "out/files/");
    folder.write("two.toml", within.replace("\"out.lcm\"", "\"out/\""));
    let told = "`other` writes a folder within that of `one`";
    run_sluice(&folder, &["check", "two.toml"]).expect(2).expect_stderr(told);
    folder.write("two.toml", within.replace("\"out.lcm\"", "\"out/a.lcm\""));
    run_sluice(&folder, &["check", "two.toml"]).expect(0);
    // What reads a folder of tables or a store takes only those.
    for file in ["out/a.lcm", "out/files/a.lcm", "out/files/a/a.lcm"] {
        folder.write("two.toml", within.replace("out/files/", "out/").replace("out.lcm", file));
        let told = "`one` writes a file within the folder of `other`";
        run_sluice(&folder, &["check", "two.toml"]).expect(2).expect_stderr(told);
    }
    // A device that drops everything may have several.
    folder
        .write("two.toml", text.replace("./out.lcm", "/dev/null").replace("out.lcm", "/dev/null"));
    run_sluice(&folder, &["check", "two.toml"]).expect(0);
}

#[test]
fn standard_input_that_is_a_file_is_not_replaced() {
    let folder = folder_with_log();
    let before = folder.read("in.lcm");
    for more in [&["--overwrite"][..], &["--overwrite", "--report", "r.json"], &["--dry-run"]] {
        let mut command = sluice(&folder);
        command.args(["convert", "-", "--to", "in.lcm"]).args(more);
        command.stdin(fs::File::open(folder.at("in.lcm")).unwrap());
        let ran = ProgramOutput::from_output(command.output().unwrap());
        let said = format!("{}{}", ran.text(), ran.stderr);
        assert!(said.contains("is also an input"), "{more:?}: {said}");
        assert!(folder.read("in.lcm") == before, "{more:?}");
    }
}
