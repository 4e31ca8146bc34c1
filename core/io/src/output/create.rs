//! Creating outputs: new, continued, growing under their final names, or written directly.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use super::disk_file::DiskFile;
use super::faults::OutputStep;
use super::file::{Destination, FrameWriter, HashingFile};
use super::litter::own_short;
use super::renames::appeared_error;
use super::targets::check_name_length;
use super::temporary_names::{INDEX, short, temporary_dir_for};
use super::{OutputFile, Outputs, Overwrite, folder_of};
use crate::Error;
use crate::files::is_special;

impl Outputs {
    /// Creates a file that is published as `target`. It is compressed if `target` ends in `.zst`.
    ///
    /// `-` is standard output, which is written directly, like devices.
    pub fn create(self: &Arc<Self>, target: &Path) -> Result<OutputFile, Error> {
        self.create_with(&self.actual_path(target), IfExists::Check, compresses(target))
    }

    /// Creates a file that is published as `target` and never compressed, whatever its name.
    pub fn create_as_is(self: &Arc<Self>, target: &Path) -> Result<OutputFile, Error> {
        self.create_with(&self.actual_path(target), IfExists::Check, Packing::Plain)
    }

    /// Creates the index of an output: a file that names its other files, by which readers find
    /// them. It is published after all others, and one that it replaces is taken away before any of
    /// them changes, so that no index names files of another run, wherever a run is killed.
    ///
    /// What killed runs [left of it](Self::abandoned_indexes) is removed when it is published, as
    /// only that names what else they left. `Err` if another run on this machine is writing it.
    pub fn create_index(self: &Arc<Self>, target: &Path) -> Result<OutputFile, Error> {
        self.create_with(&self.actual_path(target), IfExists::TakeAway, compresses(target))
    }

    /// Creates a file that starts with the current contents of `target`, if it exists, and replaces
    /// it.
    ///
    /// `Err` if the run resumes after an interruption, and the target exists: it may have the
    /// events already.
    pub fn extend(self: &Arc<Self>, target: &Path) -> Result<OutputFile, Error> {
        let packing = compresses(target);
        let target = &self.actual_path(target);
        self.prepare_parent(target)?;
        self.expect_new(target, true)?;
        if self.overwrite == Overwrite::Redo && target.exists() {
            return Err(Error::refused(format!(
                "cannot tell whether the output to continue already has these events; run without \
                 --resume: {}",
                target.display()
            )));
        }
        if self.staging.is_some() && target.exists() {
            return Err(Error::refused(format!(
                "only a run on this machine can continue an output: {}",
                target.display()
            )));
        }
        self.create_with(target, IfExists::Keep, packing)
    }

    /// Creates a file that replaces `target` when it is published, whether or not existing outputs
    /// may be replaced: for the files that describe a folder of
    /// [`extend_folder`](Self::extend_folder).
    pub fn replace(self: &Arc<Self>, target: &Path) -> Result<OutputFile, Error> {
        self.create_with(&self.actual_path(target), IfExists::Replace, Packing::Plain)
    }

    /// Creates a file below `folder` whose name is decided on completion: see
    /// [`OutputFile::finish_as`].
    pub fn create_below(self: &Arc<Self>, folder: &Path) -> Result<OutputFile, Error> {
        let folder = &self.folder_at(&self.actual_path(folder))?;
        self.make_folder(folder)?;
        let (temporary, file) = self.temporary(&temporary_dir_for(folder), "unnamed")?;
        self.state().open.insert(temporary.clone(), temporary.clone());
        let file = DiskFile::unpublished(file, self.faults.clone());
        Ok(self.file((&temporary, &temporary), file, Packing::Plain, None))
    }

    fn create_with(
        self: &Arc<Self>,
        target: &Path,
        existing: IfExists,
        packing: Packing,
    ) -> Result<OutputFile, Error> {
        if target == Path::new("-") {
            return Ok(self.direct(target, io::stdout()));
        }
        let staged = self.prepare_parent(target)?;
        check_name_length(target)?;
        if is_special(target) {
            let file = OpenOptions::new().write(true).open(target);
            let file = file.map_err(|e| Error::io("open", target, e))?;
            return Ok(self.direct(target, file));
        }
        self.expect_new(target, existing == IfExists::Keep)?;
        let kept = existing == IfExists::Keep && target.is_file();
        self.check_not_input(target)?;
        if !kept && existing != IfExists::Replace {
            self.check_target(target)?;
        }
        let followed = self.follow(target, existing == IfExists::TakeAway)?;
        let at = staged.unwrap_or_else(|| followed.clone());
        let target = followed;
        self.claim(&at)?;
        if self.in_place {
            return self.grow(&target, kept, packing);
        }
        let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary_dir = temporary_dir_for(folder_of(&at));
        if existing != IfExists::TakeAway || own_short(&at).is_none() {
            self.litter.remove(&temporary_dir, &short(&name));
        }
        let kind = if existing == IfExists::TakeAway { INDEX } else { "" };
        let (temporary, file) = self.temporary_of(&temporary_dir, &name, kind)?;
        self.state().open.insert(target.clone(), temporary.clone());
        if existing == IfExists::TakeAway {
            self.expect_alone(&at, &temporary)?;
            self.state().indexes.insert(at.clone());
        }
        let file = DiskFile::unpublished(file, self.faults.clone());
        let mut output = self.file((&target, &at), file, packing, None);
        output.continues = kept || existing == IfExists::Replace;
        if kept {
            output.copy_from(&target, &temporary)?;
        }
        Ok(output)
    }

    /// Opens a file that grows under its final name.
    fn grow(
        self: &Arc<Self>,
        target: &Path,
        kept: bool,
        packing: Packing,
    ) -> Result<OutputFile, Error> {
        let mut open = OpenOptions::new();
        match (kept, self.overwrite) {
            (true, _) => open.append(true),
            (false, Overwrite::Refuse) => open.read(true).write(true).create_new(true),
            (false, _) => open.read(true).write(true).create(true).truncate(false),
        };
        let opened = self.inject(OutputStep::Create).and_then(|()| open.open(target));
        let file = opened.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => appeared_error(target),
            _ => Error::io("create", target, e),
        })?;
        // Another recording would write over it. File systems without locks are not refused.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::refused(format!(
                "another program is writing this file; choose another name: {}",
                target.display()
            )));
        }
        if !kept && self.overwrite != Overwrite::Refuse {
            file.set_len(0).map_err(|e| Error::io("truncate", target, e))?;
        }
        let shared = file.try_clone().map_err(|e| Error::io("create", target, e))?;
        let mut state = self.state();
        state.growing.insert(target.to_owned(), Arc::new(shared));
        if !kept && self.overwrite == Overwrite::Refuse {
            state.fresh.insert(target.to_owned());
        }
        drop(state);
        let base = file.metadata().map_err(|e| Error::io("look at", target, e))?.len();
        let file = DiskFile::growing(file, base, self.faults.clone());
        let mut output = self.file((target, target), file, packing, Some(base));
        output.continues = kept;
        if kept {
            // The hash would have to include the existing contents.
            output.forget_hash();
        }
        Ok(output)
    }

    fn direct(
        self: &Arc<Self>,
        target: &Path,
        to: impl Write + IsTerminal + Send + 'static,
    ) -> OutputFile {
        let is_terminal = to.is_terminal();
        OutputFile {
            outputs: Arc::clone(self),
            target: target.to_owned(),
            at: target.to_owned(),
            destination: Destination::Direct { to: Box::new(to), is_terminal },
            hasher: self.hash.then(blake3::Hasher::new),
            bytes: 0,
            base: None,
            continues: false,
            whole: true,
            events_in_file: Arc::default(),
        }
    }

    fn file(
        self: &Arc<Self>,
        (target, at): (&Path, &Path),
        file: DiskFile,
        packing: Packing,
        base: Option<u64>,
    ) -> OutputFile {
        let mut hasher = self.hash.then(blake3::Hasher::new);
        let mut events_in_file = Arc::default();
        let destination = match packing {
            Packing::Plain => Destination::Plain(file),
            Packing::Frames => {
                let counted = HashingFile { disk: file, hasher: hasher.take(), bytes: 0 };
                let frames = FrameWriter::new(counted, base, &self.tasks);
                events_in_file = Arc::clone(&frames.events_in_file);
                Destination::Packed(Box::new(frames))
            }
        };
        let (target, at) = (target.to_owned(), at.to_owned());
        if base.is_some() {
            let events = Arc::clone(&events_in_file);
            self.state().events_in_growing.insert(target.clone(), events);
        }
        OutputFile {
            outputs: Arc::clone(self),
            target,
            at,
            destination,
            hasher,
            bytes: 0,
            base,
            continues: false,
            whole: true,
            events_in_file,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IfExists {
    Check,
    /// Like `Check`, and take it away before anything else changes.
    TakeAway,
    Keep,
    Replace,
}

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Frames,
}

fn compresses(target: &Path) -> Packing {
    let is_packed = target.extension().is_some_and(|extension| extension == "zst");
    if is_packed { Packing::Frames } else { Packing::Plain }
}
