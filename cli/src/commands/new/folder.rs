//! Creates folders atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_model::Error;

use super::template::TemplateFile;
use crate::exit::Failure;

/// Creates `folder` with these files. It may exist if it is empty.
///
/// On failure, nothing is left behind.
pub(super) fn create(folder: &Path, files: &[TemplateFile]) -> Result<(), Failure> {
    let exists = check_target(folder)?;
    let staging = create_staging(folder)?;
    let made = write(&staging, files).and_then(|()| match exists {
        true => move_into(&staging, folder),
        false => fs::rename(&staging, folder).map_err(|e| Error::io("make", folder, e)),
    });
    if made.is_err() {
        // The first failure is the one reported.
        drop(fs::remove_dir_all(&staging));
    }
    Ok(made?)
}

/// Whether the folder exists; it must be empty.
fn check_target(folder: &Path) -> Result<bool, Failure> {
    let shown = folder.display();
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(true),
            Some(_) => Err(Failure::Usage(format!(
                "the folder exists and is not empty; name another one with --to: {shown}"
            ))),
        },
        // A dangling link cannot be replaced by the new folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(folder)
        {
            Err(_) => Ok(false),
            Ok(_) => Err(Failure::Usage(format!(
                "expected a folder, found a dangling link; name another one with --to: {shown}"
            ))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Failure::Usage(format!(
            "expected a folder, found a file; name another one with --to: {shown}"
        ))),
        Err(error) => Err(Error::io("open", folder, error).into()),
    }
}

/// Creates a staging folder on the same file system as `folder`.
fn create_staging(folder: &Path) -> Result<PathBuf, Failure> {
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        let (parent, shown) = (parent.display(), folder.display());
        return Err(Failure::Usage(format!("the parent folder {parent} does not exist: {shown}")));
    }
    let staging = parent.join(format!(".sluice-new-{}.sluice-tmp", std::process::id()));
    fs::create_dir(&staging).map_err(|e| Error::io("make", &staging, e))?;
    Ok(staging)
}

fn write(folder: &Path, files: &[TemplateFile]) -> Result<(), Error> {
    for TemplateFile { path, bytes } in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::io("make", parent, e))?;
        }
        fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
    }
    Ok(())
}

/// Moves the contents of `staging` into an empty folder, which is kept because it may be the
/// working directory of a shell.
fn move_into(staging: &Path, folder: &Path) -> Result<(), Error> {
    let mut moved = Vec::new();
    let done = fs::read_dir(staging).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            let to = folder.join(entry.file_name());
            fs::rename(entry.path(), &to)?;
            moved.push(to);
        }
        fs::remove_dir(staging)
    });
    done.map_err(|e| {
        for path in moved {
            drop(if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) });
        }
        Error::io("make", folder, e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<TemplateFile> {
        let file = |path: &str| TemplateFile { path: path.to_owned(), bytes: path.into() };
        vec![file("a"), file("src/b")]
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn new_and_empty_folders_are_filled() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("empty")).unwrap();
        for name in ["new", "empty"] {
            let folder = parent.path().join(name);
            create(&folder, &files()).unwrap();
            assert_eq!(names(&folder), ["a", "src"]);
            assert_eq!(fs::read(folder.join("src/b")).unwrap(), b"src/b");
        }
        assert_eq!(names(parent.path()), ["empty", "new"]);
    }

    #[test]
    fn folders_in_use_are_refused_and_unchanged() {
        let parent = tempfile::tempdir().unwrap();
        let (used, file) = (parent.path().join("used"), parent.path().join("file"));
        fs::create_dir(&used).unwrap();
        fs::write(used.join("mine"), "").unwrap();
        fs::write(&file, "").unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for folder in [&used, &file, &link, &parent.path().join("no/such")] {
            assert!(matches!(create(folder, &files()), Err(Failure::Usage(_))), "{folder:?}");
        }
        assert_eq!(
            (names(parent.path()), names(&used)),
            (vec!["file".into(), "link".into(), "used".into()], vec!["mine".into()])
        );
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let clash =
            [files(), vec![TemplateFile { path: "a/c".to_owned(), bytes: Vec::new() }]].concat();
        fs::create_dir(parent.path().join("empty")).unwrap();
        for name in ["new", "empty"] {
            let made = create(&parent.path().join(name), &clash);
            assert!(matches!(made, Err(Failure::Failed(_) | Failure::Error(_))), "{name}");
        }
        assert_eq!(names(parent.path()), ["empty"]);
        assert!(names(&parent.path().join("empty")).is_empty());
    }
}
