//! Names the files of a recording. Moves or deletes files that are in the way, but writes none.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use jiff::fmt::strtime::BrokenDownTime;
use sluice_io::files;
use sluice_io::output::{folder_of, is_being_written, is_used, sweep_folder, sync_folder};
use sluice_model::Error;

/// What to do with an output that exists when a recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExistingOutput {
    /// Refuse to record.
    Refuse,
    /// Replace it.
    Replace,
    /// Append to it.
    Continue,
}

/// How files are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// A single file, unless SIGHUP requests more.
    One,
    /// The first free number.
    Increment,
    /// The newest file is 0; this many are kept.
    Rotate(u32),
    /// Numbered folders in a folder: `piece=00000` and so on.
    Folders,
}

/// Names the files of a recording in sequence.
#[derive(Clone, Debug)]
pub(super) struct FileNaming {
    pub(super) numbering: Numbering,
    pub(super) existing: ExistingOutput,
    /// Whether names contain strftime specifiers.
    pub(super) strftime: bool,
    /// The end of the name that identifies the format. Numbers are inserted before it.
    pub(super) suffix: String,
    /// Whether files of the format can be continued.
    pub(super) can_append: bool,
    begun: bool,
    /// The name without a number, and the next number to try.
    next: (String, u32),
}

impl FileNaming {
    pub(super) fn new(
        numbering: Numbering,
        existing: ExistingOutput,
        strftime: bool,
        suffix: String,
    ) -> Self {
        let next = (String::new(), 0);
        Self { numbering, existing, strftime, suffix, can_append: false, begun: false, next }
    }

    /// The name of `target` at this time, without a number.
    pub(super) fn base(&self, target: &str, now: &Zoned) -> Result<String, Error> {
        if self.strftime { expand(target, now) } else { Ok(target.to_owned()) }
    }

    /// Returns the name of the next file for `target` at this time. Moves existing files if needed.
    ///
    /// `Err` if the first file must not be written. Later files always get a name.
    pub(super) fn next(&mut self, target: &str, now: &Zoned) -> Result<PathBuf, Error> {
        let base = self.base(target, now)?;
        let first = !std::mem::replace(&mut self.begun, true);
        let continues = first && self.existing == ExistingOutput::Continue;
        if self.next.0 != base {
            self.next = (base.clone(), 0);
        }
        match self.numbering {
            Numbering::One if first => self.check_existing(base.into()),
            Numbering::One => self.same_or_free(base),
            Numbering::Increment => {
                let Some(newest) = self.newest().filter(|_| continues) else {
                    return Ok(self.free());
                };
                self.next.1 = newest.saturating_add(1);
                Ok(self.numbered(&format!("{newest:02}")))
            }
            Numbering::Rotate(keep) => {
                if !continues {
                    self.rotate(keep)?;
                }
                Ok(self.numbered("0"))
            }
            Numbering::Folders => self.next_folder(Path::new(&base), first),
        }
    }

    /// The current name of a file that was created as `created`, after which so many `newer` ones
    /// were created under the same name; `None` if it was deleted since, or moved away by others.
    pub(super) fn rotated(&self, created: &Path, newer: u32) -> Option<PathBuf> {
        let Numbering::Rotate(keep) = self.numbering else {
            return (newer == 0 || files::is_stream(created)).then(|| created.to_owned());
        };
        let name = created.to_str().and_then(|name| name.strip_suffix(&self.suffix));
        let Some(base) = name.and_then(|name| name.strip_suffix(".0")) else {
            return Some(created.to_owned());
        };
        (newer < keep).then(|| format!("{base}.{newer}{}", self.suffix).into())
    }

    /// Whether a file can get the name of an earlier one.
    pub(super) fn reuses_names(&self) -> bool {
        matches!(self.numbering, Numbering::One | Numbering::Rotate(_))
    }

    fn check_existing(&self, path: PathBuf) -> Result<PathBuf, Error> {
        let stream = path == Path::new("-") || files::is_special(&path);
        if !stream && exists(&path) && self.existing == ExistingOutput::Refuse {
            let append = if self.can_append { " --append continues it," } else { "" };
            return Err(Error::refused(format!(
                "the output exists; --force replaces it,{append} --increment numbers it: {}",
                path.display()
            )));
        }
        Ok(path)
    }

    /// The name itself if the file was moved away; otherwise the file is ours and is kept, and the
    /// next free number is used.
    fn same_or_free(&mut self, base: String) -> Result<PathBuf, Error> {
        let path = PathBuf::from(base);
        if !exists(&path) || path == Path::new("-") || files::is_special(&path) {
            return Ok(path);
        }
        // Tools such as logrotate may create an empty file in its place.
        if fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            fs::remove_file(&path).map_err(|e| Error::io("replace", &path, e))?;
            return Ok(path);
        }
        Ok(self.free())
    }

    /// The name with the first free number that was not used before.
    fn free(&mut self) -> PathBuf {
        loop {
            let path = self.numbered(&format!("{:02}", self.next.1));
            self.next.1 += 1;
            if !exists(&path) && !is_being_written(&path) {
                return path;
            }
        }
    }

    /// The highest number of an existing file.
    fn newest(&self) -> Option<u32> {
        let names = self.numbered("");
        let (start, suffix) = (names.file_name()?.to_str()?, &self.suffix);
        let start = start.strip_suffix(suffix.as_str()).unwrap_or(start);
        let folder = names.parent().filter(|folder| !folder.as_os_str().is_empty());
        let files = fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
        let numbers = files.flatten().filter_map(|file| {
            let name = file.file_name();
            let number = name.to_str()?.strip_prefix(start)?.strip_suffix(suffix.as_str())?;
            let parsed: u32 = number.parse().ok().filter(|parsed| *parsed < u32::MAX / 2)?;
            (format!("{parsed:02}") == number).then_some(parsed)
        });
        numbers.max()
    }

    /// Renames numbered files to the next number, up to the first gap, to free number 0.
    fn rotate(&self, keep: u32) -> Result<(), Error> {
        let name = |number: u32| self.numbered(&number.to_string());
        if is_recorded_into(&name(0)) {
            return Err(Error::refused(format!(
                "another recording is writing this file; choose another name: {}",
                name(0).display()
            )));
        }
        let free = (0..keep).find(|number| !exists(&name(*number)));
        let end = free.unwrap_or(keep - 1);
        if free.is_none() {
            let oldest = name(end);
            fs::remove_file(&oldest).map_err(|e| Error::io("delete", &oldest, e))?;
        }
        for number in (0..end).rev() {
            let (from, to) = (name(number), name(number + 1));
            fs::rename(&from, &to).map_err(|e| Error::io("move up", &from, e))?;
        }
        sync_folder(folder_of(&name(0)));
        Ok(())
    }

    fn next_folder(&mut self, folder: &Path, first: bool) -> Result<PathBuf, Error> {
        if first && self.existing == ExistingOutput::Refuse && is_used(folder) {
            return Err(Error::refused(format!(
                "the output folder exists and is not empty; --append adds pieces to it: {}",
                folder.display()
            )));
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let pieces: Vec<(PathBuf, u32)> = entries
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.strip_prefix("piece=")?.parse().ok()?;
                Some((entry.path(), number))
            })
            .collect();
        if first {
            // A recording that was killed leaves unfinished tables, of which nothing can be read.
            pieces.iter().for_each(|(piece, _)| sweep_folder(piece));
        }
        let number = pieces.iter().map(|(_, last)| last.saturating_add(1)).max().unwrap_or(0);
        let number = number.max(self.next.1);
        self.next.1 = number.saturating_add(1);
        Ok(folder.join(format!("piece={number:05}")))
    }

    /// The name with this number inserted.
    fn numbered(&self, number: &str) -> PathBuf {
        let base = &self.next.0;
        let stem = base.strip_suffix(&self.suffix).unwrap_or(base);
        format!("{stem}.{number}{}", self.suffix).into()
    }
}

/// Whether the path exists, even as a dangling link.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Whether a recording writes this file now. Our own previous one is complete.
fn is_recorded_into(path: &Path) -> bool {
    let locked = File::open(path).map(|file| file.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock))) || is_being_written(path)
}

/// Expands the strftime specifiers in `name`.
pub(super) fn expand(name: &str, now: &Zoned) -> Result<String, Error> {
    let wrong = |e| Error::invalid(format!("cannot expand `{name}` with the date and time: {e}"));
    BrokenDownTime::from(now).to_string(name).map_err(wrong)
}

#[cfg(test)]
mod tests {
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
            let mut place =
                NamingFixture::new(target, Numbering::Increment, ExistingOutput::Refuse);
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
        let mut place =
            NamingFixture::new("a.parquet", Numbering::Increment, ExistingOutput::Refuse);
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
        let mut place =
            NamingFixture::new("a.lcm.zst", Numbering::Increment, ExistingOutput::Continue);
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
        for existing in [ExistingOutput::Refuse, ExistingOutput::Replace, ExistingOutput::Continue]
        {
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
        let mut place =
            NamingFixture::new("a.parquet", Numbering::Rotate(3), ExistingOutput::Refuse);
        place.write("a.0.parquet", "0");
        place.write("a.2.parquet", "2");
        assert_eq!(place.next(), "a.0.parquet");
        assert_eq!(
            (place.read("a.1.parquet"), place.read("a.2.parquet")),
            ("0".into(), "2".into())
        );
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
}
