//! Expands names of inputs to files and folders. Opens none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::input::Input;
use super::objects;
use super::path_kind::{exists, is_folder};
use crate::Error;
use crate::globs::{self, is_glob};
use crate::store::{self, StorePath};

/// The files that these names mean: the file of that name if it exists, otherwise the files that
/// match it as a glob, sorted by name. `-` is standard input.
///
/// `Err` for a name without a file, a glob without a match, and a folder.
pub fn expand(names: &[PathBuf]) -> Result<Vec<Input>, Error> {
    let mut inputs = Vec::new();
    for name in names {
        if name == Path::new("-") {
            inputs.push(Input { path: name.clone(), bytes: None });
            continue;
        }
        if let Some(place) = StorePath::parse(name)? {
            objects::expand(name, &place, &mut inputs)?;
            continue;
        }
        match fs::metadata(name) {
            Ok(meta) => inputs.push(input(name, &meta)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_glob(name.as_os_str()) => {
                inputs.extend(matches(name)?);
            }
            Err(error) => return Err(not_found(name, Error::io("open", name, error))),
        }
    }
    Ok(inputs)
}

/// Like [`expand`], but also the folder of this name, or the folders that match it as a glob. They
/// have no length, nor have links that lead nowhere, which whoever opens them reports.
pub fn expand_with_folders(name: &Path) -> Result<Vec<Input>, Error> {
    let found = match matching_folders(name)? {
        Some(found) => found,
        None if is_glob_of_paths(name) => globs::expand(name)?,
        None if is_folder(name) => vec![name.to_owned()],
        None => return expand(&[name.to_owned()]),
    };
    if found.is_empty() {
        return Err(no_match(name));
    }
    let input = |path: PathBuf| {
        let file = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
        Input { path, bytes: file.map(|meta| meta.len()) }
    };
    Ok(found.into_iter().map(input).collect())
}

/// The folders that a name means: the folder of that name, or, if it is a glob that matches no
/// file, the folders that match it, sorted by name. In object stores, globs of folders have to end
/// with a slash. None for a file.
pub fn folders(name: &Path) -> Result<Vec<PathBuf>, Error> {
    if is_folder(name) {
        return Ok(vec![name.to_owned()]);
    }
    if let Some(found) = matching_folders(name)? {
        return Ok(found);
    }
    if !is_glob_of_paths(name) {
        return Ok(Vec::new());
    }
    let found = globs::expand(name)?;
    let has_file = found.iter().any(|path| !path.is_dir());
    Ok(if has_file { Vec::new() } else { found })
}

/// The folders in an object store that match a glob of folders; `None` if there are none.
fn matching_folders(name: &Path) -> Result<Option<Vec<PathBuf>>, Error> {
    StorePath::parse(name)?.map_or(Ok(None), |place| objects::matching_folders(name, &place))
}

/// Whether a name is a glob, and no file, folder or object has that name. True on errors.
pub fn is_only_glob(name: &Path) -> bool {
    is_glob(name.as_os_str()) && !exists(name)
}

/// How many other files and folders match this name as a glob, if a file or folder has exactly the
/// name, so that nothing else is meant.
pub fn other_matches(name: &Path) -> usize {
    if store::is_address(name) || !is_glob(name.as_os_str()) || !exists(name) {
        return 0;
    }
    let found = globs::expand(name).unwrap_or_default();
    let name = name.strip_prefix(".").unwrap_or(name);
    found.iter().filter(|path| *path != name).count()
}

fn is_glob_of_paths(name: &Path) -> bool {
    !store::is_address(name) && is_only_glob(name)
}

fn matches(name: &Path) -> Result<Vec<Input>, Error> {
    let mut found = Vec::new();
    for path in globs::expand(name)? {
        let meta = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?;
        // A glob means files; matching folders are ignored.
        if !meta.is_dir() {
            found.push(input(&path, &meta)?);
        }
    }
    if found.is_empty() { Err(no_match(name)) } else { Ok(found) }
}

fn no_match(glob: &Path) -> Error {
    let bytes = glob.as_os_str().as_encoded_bytes();
    let advice = if glob.ends_with("**") && !bytes.ends_with(b"/") {
        "; `**` means folders: write `**/*` for the files in them"
    } else if bytes.contains(&b'[') {
        "; `[ab]` means one of these characters: write `[[]` for `[` itself"
    } else {
        ""
    };
    not_found(glob, Error::refused(format!("no file matches `{}`{advice}", glob.display())))
}

/// The error for a name without a file, which may be meant as a URL.
fn not_found(name: &Path, error: Error) -> Error {
    match store::advice_for_url(name) {
        Some(advice) => error.with_detail(&advice),
        None => error,
    }
}

fn input(path: &Path, meta: &fs::Metadata) -> Result<Input, Error> {
    if meta.is_dir() {
        return Err(Error::refused(format!(
            "expected a file, found a folder: pass its files, such as {}",
            path.join("*").display()
        )));
    }
    Ok(Input { path: path.to_owned(), bytes: meta.is_file().then_some(meta.len()) })
}
