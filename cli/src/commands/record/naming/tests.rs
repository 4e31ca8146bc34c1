//! Names of recorded files, beside files that are there.

use std::time::{Duration, SystemTime};

use sluice_io::output::process_start;

use super::*;

fn at(time: &str) -> Zoned {
    time.parse::<jiff::civil::DateTime>().unwrap().to_zoned(jiff::tz::TimeZone::UTC).unwrap()
}

struct NamingFixture {
    folder: tempfile::TempDir,
    naming: FileNaming,
    target: String,
}

impl NamingFixture {
    fn new(target: &str, numbering: Numbering, existing: ExistingOutput) -> Self {
        let suffix = match target {
            target if target.ends_with(".lcm.zst") => ".lcm.zst",
            target if target.ends_with(".parquet") => ".parquet",
            _ => "",
        };
        let folder = tempfile::tempdir().unwrap();
        let target = format!("{}/{target}", folder.path().display());
        let naming = FileNaming::new(numbering, existing, true, suffix.into());
        Self { folder, naming, target }
    }

    fn next_at(&mut self, time: &str) -> Result<String, String> {
        let path = self.naming.next(&self.target, &at(time)).map_err(|e| e.to_string())?;
        let name = path.strip_prefix(self.folder.path()).unwrap();
        Ok(name.to_str().unwrap().to_owned())
    }

    /// Returns the next name, and creates the file.
    fn next(&mut self) -> String {
        let name = self.next_at("2026-05-17T09:08:07").unwrap();
        self.write(&name, &name);
        name
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        if name.contains("piece=") {
            return fs::create_dir_all(path).unwrap();
        }
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

#[test]
fn numbers_stand_last_in_names_of_logs_and_before_extensions_of_others() {
    for (target, names) in [
        ("drive.lcm", ["drive.lcm.00", "drive.lcm.01"]),
        ("lcmlog-%Y-%m-%d", ["lcmlog-2026-05-17.00", "lcmlog-2026-05-17.01"]),
        ("my.drive.parquet", ["my.drive.00.parquet", "my.drive.01.parquet"]),
        ("%H.lcm.zst", ["09.00.lcm.zst", "09.01.lcm.zst"]),
    ] {
        let mut place = NamingFixture::new(target, Numbering::Increment, ExistingOutput::Refuse);
        assert_eq!([place.next(), place.next()], names);
    }
}

#[test]
fn the_first_free_number_is_used_and_none_twice() {
    let mut place = NamingFixture::new("a", Numbering::Increment, ExistingOutput::Replace);
    place.write("a.00", "");
    place.write("a.02", "");
    assert_eq!((place.next(), place.next()), ("a.01".into(), "a.03".into()));
    // Numbers freed later are not used again.
    fs::remove_file(place.folder.path().join("a.01")).unwrap();
    assert_eq!(place.next(), "a.04");
}

#[test]
fn a_number_under_which_a_running_program_will_publish_is_not_free() {
    let mut place = NamingFixture::new("a.parquet", Numbering::Increment, ExistingOutput::Refuse);
    let process = std::process::id();
    let started = sluice_io::output::process_start(process).unwrap_or_default();
    place.write(&format!(".a.00.parquet.{process}-{started}-7.sluice-tmp"), "");
    place.write(".a.01.parquet.1-0-7.sluice-tmp", "of a program that was killed");
    assert_eq!(place.next(), "a.01.parquet");
}

#[test]
fn numbers_restart_with_the_day_and_continue_above_99() {
    let mut place = NamingFixture::new("%d", Numbering::Increment, ExistingOutput::Refuse);
    assert_eq!(place.next_at("2026-05-17T23:59:59").unwrap(), "17.00");
    assert_eq!(place.next_at("2026-05-18T00:00:00").unwrap(), "18.00");
    (0..101).for_each(|number| place.write(&format!("18.{number:02}"), ""));
    assert_eq!(place.next_at("2026-05-18T00:00:01").unwrap(), "18.101");
}

#[test]
fn append_continues_the_newest_number_once() {
    let mut place = NamingFixture::new("a", Numbering::Increment, ExistingOutput::Continue);
    place.write("a.00", "");
    place.write("a.01", "");
    assert_eq!((place.next(), place.next()), ("a.01".into(), "a.02".into()));
    let mut place = NamingFixture::new("a", Numbering::Increment, ExistingOutput::Continue);
    assert_eq!((place.next(), place.next()), ("a.00".into(), "a.01".into()));
}

#[test]
fn append_finds_the_newest_number_behind_gaps() {
    let mut place = NamingFixture::new("a.lcm.zst", Numbering::Increment, ExistingOutput::Continue);
    for name in ["a.00.lcm.zst", "a.02.lcm.zst", "a.7.lcm.zst", "a.x.lcm.zst", "b.99.lcm.zst"] {
        place.write(name, "");
    }
    assert_eq!((place.next(), place.next()), ("a.02.lcm.zst".into(), "a.03.lcm.zst".into()));
    let mut place = NamingFixture::new("a", Numbering::Increment, ExistingOutput::Continue);
    place.write("a.99", "");
    place.write("a.100", "");
    place.write("a.4294967295", "");
    assert_eq!((place.next(), place.next()), ("a.100".into(), "a.101".into()));
}

#[test]
fn one_file_is_refused_where_it_exists_unless_asked_for() {
    for (existing, goes) in [
        (ExistingOutput::Refuse, false),
        (ExistingOutput::Replace, true),
        (ExistingOutput::Continue, true),
    ] {
        let mut place = NamingFixture::new("a", Numbering::One, existing);
        place.write("a", "x");
        let next = place.next_at("2026-05-17T00:00:00");
        assert_eq!(next.is_ok(), goes, "{existing:?}");
        assert!(next.is_ok_and(|name| name == "a") || !goes);
    }
}

#[test]
fn continuing_a_file_is_advised_only_if_its_format_can() {
    for can in [false, true] {
        let mut place = NamingFixture::new("a", Numbering::One, ExistingOutput::Refuse);
        place.naming.can_append = can;
        place.write("a", "x");
        assert_eq!(place.next_at("2026-05-17T00:00:00").unwrap_err().contains("--append"), can);
    }
}

#[test]
fn one_file_has_its_name_again_if_it_was_moved_away_and_is_never_its_own_victim() {
    for existing in [ExistingOutput::Refuse, ExistingOutput::Replace, ExistingOutput::Continue] {
        let mut place = NamingFixture::new("a", Numbering::One, existing);
        assert_eq!(place.next(), "a");
        assert_eq!((place.next(), place.next()), ("a.00".into(), "a.01".into()));
        let at = |name: &str| place.folder.path().join(name);
        fs::rename(at("a"), at("moved")).unwrap();
        assert_eq!(place.next(), "a");
        // logrotate's `create`.
        place.write("a", "");
        assert_eq!(place.next(), "a");
        assert_eq!((place.read("a.00"), place.read("a")), ("a.00".into(), "a".into()));
    }
}

#[test]
fn a_rotation_keeps_the_newest_ones() {
    let mut place = NamingFixture::new("a", Numbering::Rotate(3), ExistingOutput::Refuse);
    place.write("a.0", "earlier");
    (0..2).for_each(|_| drop(place.next()));
    assert_eq!(place.names(), ["a.0", "a.1", "a.2"]);
    assert_eq!(place.read("a.2"), "earlier");
    place.next();
    assert_eq!((place.names().len(), place.read("a.2")), (3, "a.0".into()));
}

#[test]
fn a_rotation_that_another_recording_uses_is_refused() {
    let mut place = NamingFixture::new("a", Numbering::Rotate(3), ExistingOutput::Refuse);
    place.write("a.0", "of another");
    let other = File::open(place.folder.path().join("a.0")).unwrap();
    other.try_lock().unwrap();
    let error = place.next_at("2026-05-17T00:00:00").unwrap_err();
    assert!(error.contains("another recording is writing"), "{error}");
    assert_eq!(place.names(), ["a.0"]);
    drop(other);
    assert_eq!((place.next(), place.names().len()), ("a.0".into(), 2));
}

#[test]
fn a_rotation_deletes_nothing_while_there_is_room() {
    let mut place = NamingFixture::new("a.parquet", Numbering::Rotate(3), ExistingOutput::Refuse);
    place.write("a.0.parquet", "0");
    place.write("a.2.parquet", "2");
    assert_eq!(place.next(), "a.0.parquet");
    assert_eq!((place.read("a.1.parquet"), place.read("a.2.parquet")), ("0".into(), "2".into()));
}

#[test]
fn a_rotation_that_continues_leaves_the_first_file_in_its_place() {
    let mut place = NamingFixture::new("a", Numbering::Rotate(2), ExistingOutput::Continue);
    place.write("a.0", "earlier");
    assert_eq!(place.next_at("2026-05-17T00:00:00").unwrap(), "a.0");
    place.next();
    assert_eq!(place.read("a.1"), "earlier");
}

#[test]
fn pieces_of_a_folder_continue_after_the_last() {
    let mut place = NamingFixture::new("t/", Numbering::Folders, ExistingOutput::Continue);
    place.write("t/piece=00006", "");
    assert_eq!((place.next(), place.next()), ("t/piece=00007".into(), "t/piece=00008".into()));
    let mut place = NamingFixture::new("t/", Numbering::Folders, ExistingOutput::Refuse);
    place.write("t/piece=00000", "");
    assert!(place.next_at("2026-05-17T00:00:00").unwrap_err().contains("not empty"));
}

#[test]
fn what_killed_recordings_left_in_their_pieces_is_removed() {
    let mut place = NamingFixture::new("t/", Numbering::Folders, ExistingOutput::Continue);
    let process = std::process::id();
    let started = process_start(process).unwrap_or_default();
    let table = "t/piece=00001/channel=A/part-00000.parquet".to_owned();
    let litter = |piece: u8, owner: &str| {
        format!("t/piece=0000{piece}/.part-00000.parquet.{owner}-0.sluice-tmp")
    };
    let in_use = litter(3, &format!("{process}-{started}"));
    let stale = [1, 2].map(|piece| litter(piece, "4294967295-1"));
    for file in [&table, &in_use, &stale[0], &stale[1]] {
        let path = place.folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let folder = File::open(place.folder.path().join("t/piece=00002")).unwrap();
    folder.set_modified(long_ago).unwrap();
    assert_eq!(place.next(), "t/piece=00004");
    let is_there = |file: &str| place.folder.path().join(file).exists();
    assert!(is_there(&table) && is_there(&in_use));
    assert!(!is_there(&stale[0]) && !is_there("t/piece=00002"));
}

#[test]
fn a_name_that_no_clock_fills_in_is_refused() {
    let mut place = NamingFixture::new("%!", Numbering::One, ExistingOutput::Refuse);
    assert!(place.next_at("2026-05-17T00:00:00").unwrap_err().contains("`"));
}
