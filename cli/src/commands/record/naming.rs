//! What the files of a recording are called. Writes none, but moves away and clears what is in their way.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Zoned;
use jiff::fmt::strtime::BrokenDownTime;
use sluice_core::output::{is_used, sync_folder};
use sluice_core::{Error, files};

/// What becomes of a file that is there when a recording begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// The recording is refused.
    Refuse,
    /// It is replaced.
    Replace,
    /// It is continued.
    Continue,
}

/// How files are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// There is one, unless SIGHUP asks for more.
    One,
    /// By the first number that is free.
    Increment,
    /// The newest one is 0, and so many are kept.
    Rotate(u32),
    /// They are folders in a folder, `piece=00000` and so on.
    Folders,
}

/// Names the files of a recording, one after another.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    pub(super) numbering: Numbering,
    pub(super) existing: Existing,
    /// Whether names have the date and time in them.
    pub(super) strftime: bool,
    /// The end of the name that numbers stand before: tools know the format by it.
    pub(super) suffix: String,
    begun: bool,
    /// The name without a number, and the number that is tried next.
    next: (String, u32),
}

impl Naming {
    pub(super) fn new(
        numbering: Numbering,
        existing: Existing,
        strftime: bool,
        suffix: String,
    ) -> Self {
        let next = (String::new(), 0);
        Self { numbering, existing, strftime, suffix, begun: false, next }
    }

    /// The name of the next file that stands for `target`, at this time. Moves away what has to be.
    ///
    /// `Err` if the first one must not be written. The others always find a place.
    pub(super) fn next(&mut self, target: &str, now: &Zoned) -> Result<PathBuf, Error> {
        let base = if self.strftime { expand(target, now)? } else { target.to_owned() };
        let first = !std::mem::replace(&mut self.begun, true);
        let continues = first && self.existing == Existing::Continue;
        if self.next.0 != base {
            self.next = (base.clone(), 0);
        }
        match self.numbering {
            Numbering::One if first => self.judge(base.into()),
            Numbering::One => self.same_or_free(base),
            Numbering::Increment => {
                let free = self.free();
                let Some(last) = self.next.1.checked_sub(2).filter(|_| continues) else {
                    return Ok(free);
                };
                self.next.1 -= 1;
                Ok(self.numbered(&format!("{last:02}")))
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

    /// What the file with this number is called, where files rotate and names have no time in them.
    pub(super) fn rotated(&self, target: &str, number: u32) -> PathBuf {
        let next = (target.to_owned(), 0);
        Self { next, ..self.clone() }.numbered(&number.to_string())
    }

    fn judge(&self, path: PathBuf) -> Result<PathBuf, Error> {
        let stream = path == Path::new("-") || files::is_special(&path);
        if !stream && is_there(&path) && self.existing == Existing::Refuse {
            return Err(Error::refused(format!(
                "the output exists; --force replaces it, --append continues it, --increment numbers it: {}",
                path.display()
            )));
        }
        Ok(path)
    }

    /// The name itself if the file was moved away; else it is this recording's own, and stays.
    fn same_or_free(&mut self, base: String) -> Result<PathBuf, Error> {
        let path = PathBuf::from(base);
        if !is_there(&path) || path == Path::new("-") || files::is_special(&path) {
            return Ok(path);
        }
        // What moves logs away may put an empty one in the place.
        if fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            fs::remove_file(&path).map_err(|e| Error::io("replace", &path, e))?;
            return Ok(path);
        }
        Ok(self.free())
    }

    /// The name with the first number that is free, and that was not given before.
    fn free(&mut self) -> PathBuf {
        loop {
            let path = self.numbered(&format!("{:02}", self.next.1));
            self.next.1 += 1;
            if !is_there(&path) {
                return path;
            }
        }
    }

    /// Moves the files with numbers up by one, as far as they are in the way of a new number 0.
    fn rotate(&self, keep: u32) -> Result<(), Error> {
        let name = |number: u32| self.numbered(&number.to_string());
        let free = (0..keep).find(|number| !is_there(&name(*number)));
        let end = free.unwrap_or(keep - 1);
        if free.is_none() {
            let oldest = name(end);
            fs::remove_file(&oldest).map_err(|e| Error::io("delete", &oldest, e))?;
        }
        for number in (0..end).rev() {
            let (from, to) = (name(number), name(number + 1));
            fs::rename(&from, &to).map_err(|e| Error::io("move up", &from, e))?;
        }
        sync_folder(name(0).parent().unwrap_or(Path::new(".")));
        Ok(())
    }

    fn next_folder(&mut self, folder: &Path, first: bool) -> Result<PathBuf, Error> {
        if first && self.existing == Existing::Refuse && is_used(folder) {
            return Err(Error::refused(format!(
                "the output folder exists and is not empty; --append adds pieces to it: {}",
                folder.display()
            )));
        }
        let pieces = fs::read_dir(folder).into_iter().flatten().flatten();
        let numbers = pieces.filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix("piece=")?.parse::<u32>().ok()
        });
        let number = numbers.map(|last| last.saturating_add(1)).max().unwrap_or(0);
        let number = number.max(self.next.1);
        self.next.1 = number.saturating_add(1);
        Ok(folder.join(format!("piece={number:05}")))
    }

    /// The name with this number where numbers go.
    fn numbered(&self, number: &str) -> PathBuf {
        let base = &self.next.0;
        let stem = base.strip_suffix(&self.suffix).unwrap_or(base);
        format!("{stem}.{number}{}", self.suffix).into()
    }
}

/// Whether anything has this name, be it a link to nothing.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// `name` with the date and time in the places that stand for them.
pub(super) fn expand(name: &str, now: &Zoned) -> Result<String, Error> {
    let wrong = |e| Error::unfit(format!("`{name}` cannot be filled in with a date and time: {e}"));
    BrokenDownTime::from(now).to_string(name).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Zoned {
        time.parse::<jiff::civil::DateTime>().unwrap().to_zoned(jiff::tz::TimeZone::UTC).unwrap()
    }

    struct Place {
        folder: tempfile::TempDir,
        naming: Naming,
        target: String,
    }

    impl Place {
        fn new(target: &str, numbering: Numbering, existing: Existing) -> Self {
            let suffix = match target {
                target if target.ends_with(".lcm.zst") => ".lcm.zst",
                target if target.ends_with(".parquet") => ".parquet",
                _ => "",
            };
            let folder = tempfile::tempdir().unwrap();
            let target = format!("{}/{target}", folder.path().display());
            Self { folder, naming: Naming::new(numbering, existing, true, suffix.into()), target }
        }

        fn next_at(&mut self, time: &str) -> Result<String, String> {
            let path = self.naming.next(&self.target, &at(time)).map_err(|e| e.to_string())?;
            let name = path.strip_prefix(self.folder.path()).unwrap();
            Ok(name.to_str().unwrap().to_owned())
        }

        /// The next name, which then exists.
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
            let mut place = Place::new(target, Numbering::Increment, Existing::Refuse);
            assert_eq!([place.next(), place.next()], names);
        }
    }

    #[test]
    fn the_first_free_number_is_taken_and_none_twice() {
        let mut place = Place::new("a", Numbering::Increment, Existing::Replace);
        place.write("a.00", "");
        place.write("a.02", "");
        assert_eq!((place.next(), place.next()), ("a.01".into(), "a.03".into()));
        // Whoever takes a file away makes no place for a later one before it.
        fs::remove_file(place.folder.path().join("a.01")).unwrap();
        assert_eq!(place.next(), "a.04");
    }

    #[test]
    fn numbers_begin_anew_with_the_day_and_go_on_above_99() {
        let mut place = Place::new("%d", Numbering::Increment, Existing::Refuse);
        assert_eq!(place.next_at("2026-05-17T23:59:59").unwrap(), "17.00");
        assert_eq!(place.next_at("2026-05-18T00:00:00").unwrap(), "18.00");
        (0..101).for_each(|number| place.write(&format!("18.{number:02}"), ""));
        assert_eq!(place.next_at("2026-05-18T00:00:01").unwrap(), "18.101");
    }

    #[test]
    fn what_is_continued_is_the_newest_number_once() {
        let mut place = Place::new("a", Numbering::Increment, Existing::Continue);
        place.write("a.00", "");
        place.write("a.01", "");
        assert_eq!((place.next(), place.next()), ("a.01".into(), "a.02".into()));
        let mut place = Place::new("a", Numbering::Increment, Existing::Continue);
        assert_eq!((place.next(), place.next()), ("a.00".into(), "a.01".into()));
    }

    #[test]
    fn one_file_is_refused_where_it_exists_unless_asked_for() {
        for (existing, goes) in
            [(Existing::Refuse, false), (Existing::Replace, true), (Existing::Continue, true)]
        {
            let mut place = Place::new("a", Numbering::One, existing);
            place.write("a", "x");
            let next = place.next_at("2026-05-17T00:00:00");
            assert_eq!(next.is_ok(), goes, "{existing:?}");
            assert!(next.is_ok_and(|name| name == "a") || !goes);
        }
    }

    #[test]
    fn one_file_has_its_name_again_if_it_was_moved_away_and_is_never_its_own_victim() {
        for existing in [Existing::Refuse, Existing::Replace, Existing::Continue] {
            let mut place = Place::new("a", Numbering::One, existing);
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
        let mut place = Place::new("a", Numbering::Rotate(3), Existing::Refuse);
        place.write("a.0", "earlier");
        (0..2).for_each(|_| drop(place.next()));
        assert_eq!(place.names(), ["a.0", "a.1", "a.2"]);
        assert_eq!(place.read("a.2"), "earlier");
        place.next();
        assert_eq!((place.names().len(), place.read("a.2")), (3, "a.0".into()));
    }

    #[test]
    fn a_rotation_deletes_nothing_while_there_is_room() {
        let mut place = Place::new("a.parquet", Numbering::Rotate(3), Existing::Refuse);
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
        let mut place = Place::new("a", Numbering::Rotate(2), Existing::Continue);
        place.write("a.0", "earlier");
        assert_eq!(place.next_at("2026-05-17T00:00:00").unwrap(), "a.0");
        place.next();
        assert_eq!(place.read("a.1"), "earlier");
    }

    #[test]
    fn pieces_of_a_folder_go_on_behind_the_last_one() {
        let mut place = Place::new("t/", Numbering::Folders, Existing::Continue);
        place.write("t/piece=00006", "");
        assert_eq!((place.next(), place.next()), ("t/piece=00007".into(), "t/piece=00008".into()));
        let mut place = Place::new("t/", Numbering::Folders, Existing::Refuse);
        place.write("t/piece=00000", "");
        assert!(place.next_at("2026-05-17T00:00:00").unwrap_err().contains("not empty"));
    }

    #[test]
    fn a_name_that_no_clock_fills_in_is_refused() {
        let mut place = Place::new("%!", Numbering::One, Existing::Refuse);
        assert!(place.next_at("2026-05-17T00:00:00").unwrap_err().contains("`"));
    }
}
