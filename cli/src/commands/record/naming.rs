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
mod tests;
