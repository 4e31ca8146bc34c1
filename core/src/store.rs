//! Object stores: places of logs and outputs that have addresses, such as `s3://bucket/drives/a.lcm`, instead of
//! paths. What a store must be able to do, and which stores a program has.
//!
//! Knows no protocol and no async runtime: a store is a crate of its own, which the full program links. What is
//! done with objects as inputs is in [`files`](crate::files), as outputs in [`output`](crate::output).

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use crate::{Error, ErrorKind, FULL_PROGRAM};

/// A place in a store: `scheme://bucket/key`. Keys have no leading slash; that of a whole bucket is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    scheme: &'static str,
    bucket: String,
    key: String,
}

impl Address {
    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key in the bucket.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The address of another key in the same bucket.
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// The address as a path. `bucket/key` stay as they are through joining and taking parents.
    pub fn path(&self) -> PathBuf {
        self.to_string().into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.bucket, self.key)
    }
}

/// What is known of an object: two reads that find the same saw the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// How many bytes it has.
    pub len: u64,
    /// What tells one version of its bytes from another; empty in a listing that does not say.
    pub version: String,
}

/// What becomes of an object that has the key already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// It stays: putting fails with [`io::ErrorKind::AlreadyExists`].
    New,
    /// It is replaced.
    Replace,
}

/// Which objects are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDepth {
    /// Those without a slash in what follows the prefix.
    One,
    /// All that begin with the prefix.
    All,
}

/// Bytes that are on their way.
pub trait PendingRead: Send {
    /// Waits for them.
    fn wait(self: Box<Self>) -> io::Result<Bytes>;
}

/// A kind of object store. Called from any thread, also from several at once; every call is done within bounded
/// time, after what fails for a moment was tried again.
///
/// Errors say in words what went wrong and what to do, without credentials; their kind is `NotFound` where there
/// is no such object.
pub trait Store: Send + Sync {
    /// What is known of an object.
    fn stat(&self, at: &Address) -> io::Result<ObjectState>;

    /// When an object was put, as the store's clock says.
    fn put_time(&self, at: &Address) -> io::Result<SystemTime>;

    /// Up to `most` objects whose keys begin with that of `prefix`, with their keys, in any order.
    fn list(
        &self,
        prefix: &Address,
        depth: ListDepth,
        most: usize,
    ) -> io::Result<Vec<(String, ObjectState)>>;

    /// Begins to read a range of an object that was in this state, and lies in it. The bytes are exactly that
    /// range of that state: `Err` if the object has changed since ([`changed`]).
    fn read(&self, at: &Address, state: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead>;

    /// Puts bytes. The object appears whole or not at all.
    fn put(&self, at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()>;

    /// Puts the bytes of a local file, in parts where it is long. The object appears whole or not at all.
    fn put_file(&self, at: &Address, file: &Path, how: PutMode) -> io::Result<()>;

    /// Copies an object within a bucket, in the store itself.
    fn copy(&self, from: &Address, to: &Address) -> io::Result<()>;

    /// Removes an object. That there is none is no error.
    fn remove(&self, at: &Address) -> io::Result<()>;
}

/// A store that is linked into this program. Made by [`register!`](crate::register).
#[derive(Clone, Copy)]
pub struct LinkedStore {
    /// What stands before `://` in its addresses; the first is what all of them mean.
    pub schemes: &'static [&'static str],
    /// The store.
    pub store: &'static dyn Store,
}

inventory::collect!(LinkedStore);

/// Schemes of stores that the full program has, and others may not.
const KNOWN_SCHEMES: [&str; 2] = ["s3", "s3a"];

/// An address, and the store that has it.
#[derive(Clone)]
pub struct StorePath {
    /// The store.
    pub store: &'static dyn Store,
    /// The address.
    pub at: Address,
}

impl fmt::Debug for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StorePath({})", self.at)
    }
}

impl StorePath {
    /// The place that a path means; nothing if it is one of this machine's files.
    ///
    /// `Err` if it is an address that cannot be, or of a store that this program was built without.
    pub fn parse(path: &Path) -> Result<Option<Self>, Error> {
        let Some((scheme, rest)) = split_scheme(path) else { return Ok(None) };
        let Some(linked) = linked(scheme) else { return not_linked(path, scheme) };
        let wrong = |what: &str| {
            let path = path.display();
            Err(ErrorKind::NotAllowed(format!("{what}: {path}")).into())
        };
        let Ok(rest) = std::str::from_utf8(rest) else { return wrong("this address is not UTF-8") };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return wrong("this address names no bucket; write s3://BUCKET/KEY");
        }
        // A path would take them for one and the same, and a store does not.
        let inner = key.strip_suffix('/').unwrap_or(key);
        if !key.is_empty() && inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return wrong("an address cannot have `//`, `.` or `..` in its key");
        }
        if rest.chars().any(char::is_control) {
            return wrong("an address cannot have control characters");
        }
        let scheme = linked.schemes.first().copied().unwrap_or_default();
        let at = Address { scheme, bucket: bucket.to_owned(), key: key.to_owned() };
        Ok(Some(Self { store: linked.store, at }))
    }

    /// The place with a slash behind its key, so that it is the prefix of what lies below it.
    pub fn folder(&self) -> Self {
        let key = self.at.key();
        if key.is_empty() || key.ends_with('/') {
            return self.clone();
        }
        Self { store: self.store, at: self.at.with_key(format!("{key}/")) }
    }

    /// The same store at another key of the bucket.
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { store: self.store, at: self.at.with_key(key) }
    }
}

/// Whether a path is an address in an object store, be it one that this program has or one it only knows of.
pub fn is_address(path: &Path) -> bool {
    split_scheme(path)
        .is_some_and(|(scheme, _)| linked(scheme).is_some() || is_known_scheme(scheme))
}

/// Whether this program has a store for addresses that begin with `scheme`.
pub fn is_linked(scheme: &str) -> bool {
    linked(scheme).is_some()
}

/// What stands before and behind `://` in a path that has it at its beginning.
fn split_scheme(path: &Path) -> Option<(&str, &[u8])> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let end = bytes.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    let (scheme, rest) = bytes.split_at_checked(end).filter(|(scheme, _)| !scheme.is_empty())?;
    Some((std::str::from_utf8(scheme).ok()?, rest.strip_prefix(b"://")?))
}

fn linked(scheme: &str) -> Option<&'static LinkedStore> {
    inventory::iter::<LinkedStore>
        .into_iter()
        .find(|linked| linked.schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
}

fn is_known_scheme(scheme: &str) -> bool {
    KNOWN_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// A file may have any name, so only what is known to be an address is refused.
fn not_linked(path: &Path, scheme: &str) -> Result<Option<StorePath>, Error> {
    if !is_known_scheme(scheme) {
        return Ok(None);
    }
    let path = path.display();
    let what = format!("{path}: this program was built without object stores; {FULL_PROGRAM}");
    Err(ErrorKind::NotAllowed(what).into())
}

/// The error that an object is no more what it was when this run looked at it first.
pub fn changed_error() -> io::Error {
    io::Error::other(
        "it has changed since this run looked at it first; run again once it stays as it is",
    )
}

#[cfg(test)]
pub(crate) mod memory;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Option<StorePath>, Error> {
        StorePath::parse(Path::new(text))
    }

    #[test]
    fn addresses_are_told_from_paths() {
        for text in ["a.lcm", "/mem/a", "mem:/b/a", "-", "C://x", "://x", "", "a/mem://b/c"] {
            assert!(place(text).unwrap().is_none(), "{text}");
            assert!(!is_address(Path::new(text)), "{text}");
        }
        let found = place("mem://bucket/a/b.lcm").unwrap().unwrap().at;
        assert_eq!((found.bucket(), found.key()), ("bucket", "a/b.lcm"));
        assert_eq!(place("mem://bucket").unwrap().unwrap().at.key(), "");
    }

    #[test]
    fn other_names_of_a_scheme_mean_the_same_place() {
        let at = |text| place(text).unwrap().unwrap().at;
        assert_eq!(at("memory://b/k"), at("mem://b/k"));
        assert_eq!(at("MEM://b/k").to_string(), "mem://b/k");
    }

    #[test]
    fn what_cannot_be_an_address_is_refused() {
        for text in
            ["mem://", "mem:///k", "mem://b/a//b", "mem://b/../a", "mem://b//", "mem://b/a\nb"]
        {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_that_is_not_linked_is_told_from_a_missing_file() {
        let said = place("s3://bucket/a.lcm").unwrap_err();
        assert!(said.to_string().contains(FULL_PROGRAM), "{said}");
        assert!(matches!(said.kind(), ErrorKind::NotAllowed(_)));
        assert!(is_address(Path::new("s3a://bucket/a.lcm")));
    }

    #[test]
    fn addresses_survive_what_is_done_with_paths() {
        let folder = Path::new("mem://bucket/out/");
        let file = folder.join("channel=A").join("part-0.parquet");
        assert_eq!(
            place(file.to_str().unwrap()).unwrap().unwrap().at.key(),
            "out/channel=A/part-0.parquet"
        );
        assert_eq!(file.parent().unwrap().to_str(), Some("mem://bucket/out/channel=A"));
        assert_eq!(file.strip_prefix(folder).unwrap(), Path::new("channel=A/part-0.parquet"));
        assert_eq!(file.with_file_name("x").to_str(), Some("mem://bucket/out/channel=A/x"));
        assert_eq!(Path::new("mem://bucket").join("x").to_str(), Some("mem://bucket/x"));
    }
}
