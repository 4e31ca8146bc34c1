//! Object stores: the store trait, addresses such as `s3://bucket/drives/a.lcm`, and the stores
//! linked into a program.
//!
//! Knows no protocol and no async runtime: stores are separate crates, linked by the full program.
//! Objects as inputs are in [`files`](crate::files), as outputs in [`output`](crate::output).

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use crate::{Error, ErrorKind};

/// Advice for features that the program was built without: SQL over logs, the cluster, and object
/// stores.
pub const FULL_PROGRAM: &str =
    "build the full program: cargo build --release --manifest-path full/Cargo.toml";

/// An address in a store: `scheme://bucket/key`. Keys have no leading slash; that of a whole bucket
/// is empty.
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

    /// The address as a path, which can be joined and has parents like any other.
    pub fn path(&self) -> PathBuf {
        self.to_string().into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.bucket, self.key)
    }
}

/// The state of an object: reads with equal states return the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// Its length in bytes.
    pub len: u64,
    /// Identifies the version of its bytes; empty in listings that do not include it.
    pub version: String,
}

/// What to do if an object with the key exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Keep it, and fail with [`io::ErrorKind::AlreadyExists`].
    New,
    /// Replace it.
    Replace,
    /// Replace it if it is still in this state; otherwise fail with
    /// [`io::ErrorKind::AlreadyExists`].
    Update(ObjectState),
}

/// Which objects are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDepth {
    /// Those without a slash after the prefix.
    One,
    /// All with the prefix.
    All,
}

/// A read in progress.
pub trait PendingRead: Send {
    /// Waits for the bytes.
    fn wait(self: Box<Self>) -> io::Result<Bytes>;
}

/// A kind of object store. Methods are called from any thread, also concurrently. Every call ends
/// within bounded time and retries transient errors.
///
/// Error messages say what went wrong and what to do, without credentials; their kind is `NotFound`
/// if there is no such object.
pub trait Store: Send + Sync {
    /// The current state of an object.
    fn stat(&self, at: &Address) -> io::Result<ObjectState>;

    /// When an object was written, by the store's clock.
    fn put_time(&self, at: &Address) -> io::Result<SystemTime>;

    /// Lists up to `most` objects whose keys start with that of `prefix`, in any order.
    fn list(
        &self,
        prefix: &Address,
        depth: ListDepth,
        most: usize,
    ) -> io::Result<Vec<(String, ObjectState)>>;

    /// Starts reading a range within an object of this state. `Err` if the object has changed since
    /// ([`changed_error`]).
    fn read(&self, at: &Address, state: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead>;

    /// Whether the object at an address is one that this process has put there, not copied; `false`
    /// if there is none.
    fn is_own(&self, at: &Address) -> io::Result<bool>;

    /// Writes an object atomically. `Err` means that the object is not there, unless the store
    /// could not be asked any more.
    fn put(&self, at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()>;

    /// Uploads a local file atomically, in parts if it is long.
    fn put_file(&self, at: &Address, file: &Path, how: PutMode) -> io::Result<()>;

    /// Copies an object within a bucket, on the server.
    fn copy(&self, from: &Address, to: &Address) -> io::Result<()>;

    /// Copies an object that is not empty; fails with [`io::ErrorKind::AlreadyExists`] if there is
    /// one already.
    fn copy_new(&self, from: &Address, to: &Address) -> io::Result<()>;

    /// Removes an object. A missing object is not an error.
    fn remove(&self, at: &Address) -> io::Result<()>;

    /// Whether the store no longer answers, so that more requests are in vain.
    fn is_gone(&self, at: &Address) -> bool;
}

/// A store that is linked into this program. Made by `register!`.
#[derive(Clone, Copy)]
pub struct LinkedStore {
    /// Its URL schemes; the first is the canonical one.
    pub schemes: &'static [&'static str],
    /// The store.
    pub store: &'static dyn Store,
}

inventory::collect!(LinkedStore);

/// The schemes of stores in the full program.
const FULL_SCHEMES: [&str; 2] = ["s3", "s3a"];
/// Schemes that no store has. Without them, `gs://bucket/a.lcm` would be the file `a.lcm` in the
/// folder `gs:`.
const FOREIGN_SCHEMES: [&str; 19] = [
    "file", "http", "https", "ftp", "ftps", "sftp", "scp", "ssh", "smb", "nfs", "gs", "gcs", "az",
    "abfs", "abfss", "wasb", "wasbs", "hdfs", "webhdfs",
];

/// What is wrong with the URL of a local file.
const FILE_URL: &str = "expected a path, found a URL; leave out `file://`";

/// An address and its store.
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
    /// Parses a path as an address; `None` if it is a local path.
    ///
    /// `Err` if the address is invalid, or its store is not linked into this program.
    pub fn parse(path: &Path) -> Result<Option<Self>, Error> {
        let Some((scheme, rest)) = split_scheme(path) else {
            let refused = |why| ErrorKind::NotAllowed(format!("{}: {why}", path.display())).into();
            return slashes_missing(path).map_or(Ok(None), |why| Err(refused(why)));
        };
        let Some(linked) = linked(scheme) else { return not_linked(path, scheme) };
        let wrong = |what: &str| {
            let path = path.display();
            Err(ErrorKind::NotAllowed(format!("{what}: {path}")).into())
        };
        let Ok(rest) = std::str::from_utf8(rest) else { return wrong("this address is not UTF-8") };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return wrong("this address has no bucket; write s3://BUCKET/KEY");
        }
        // Paths normalize these, but stores do not. Pipelines put a slash behind any folder.
        let inner = key.trim_end_matches('/');
        let key = key.get(..(inner.len() + 1).min(key.len())).unwrap_or(key);
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

    /// The address with a trailing slash, as the prefix of everything below it.
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

/// Whether a path is an address in an object store, linked or just known, or another URL that
/// [`StorePath::parse`] does not take for a local path.
pub fn is_address(path: &Path) -> bool {
    match split_scheme(path) {
        Some((scheme, _)) => linked(scheme).is_some() || is_known_scheme(scheme),
        None => slashes_missing(path).is_some(),
    }
}

/// Whether a store for this scheme is linked into the program.
pub fn is_linked(scheme: &str) -> bool {
    linked(scheme).is_some()
}

/// Splits a path that starts with a scheme and `://`.
fn split_scheme(path: &Path) -> Option<(&str, &[u8])> {
    let (scheme, rest) = split_colon(path)?;
    Some((scheme, rest.strip_prefix(b"//")?))
}

/// Splits a path that starts with a scheme and a colon.
fn split_colon(path: &Path) -> Option<(&str, &[u8])> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let end = bytes.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    let (scheme, rest) = bytes.split_at_checked(end).filter(|(scheme, _)| !scheme.is_empty())?;
    Some((std::str::from_utf8(scheme).ok()?, rest.strip_prefix(b":")?))
}

/// What to write in place of a path such as `s3:/bucket/a.lcm`, which is an address without one or
/// both of its slashes, and not the file `a.lcm` in the folder `s3:`.
fn slashes_missing(path: &Path) -> Option<String> {
    let (scheme, rest) = split_colon(path)?;
    let is_store = linked(scheme).is_some() || is_one_of(&FULL_SCHEMES, scheme);
    let is_foreign = rest.starts_with(b"/") && is_one_of(&FOREIGN_SCHEMES, scheme);
    // To `Path`, the parent of a bucket is its scheme.
    if rest.is_empty() || rest.starts_with(b"//") || !(is_store || is_foreign) {
        return None;
    }
    let address = match is_store {
        true => format!("an address has two slashes: write {scheme}://BUCKET/KEY"),
        false => format!("{scheme}: is not supported"),
    };
    Some(format!("{address}; or put ./ before it if it is the name of a local file"))
}

fn linked(scheme: &str) -> Option<&'static LinkedStore> {
    inventory::iter::<LinkedStore>
        .into_iter()
        .find(|linked| linked.schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
}

fn is_known_scheme(scheme: &str) -> bool {
    is_one_of(&FULL_SCHEMES, scheme) || is_one_of(&FOREIGN_SCHEMES, scheme)
}

fn is_one_of(schemes: &[&str], scheme: &str) -> bool {
    schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// A file may have any name, so only known schemes are refused.
fn not_linked(path: &Path, scheme: &str) -> Result<Option<StorePath>, Error> {
    let why = match unsupported(path) {
        Some(why) => why,
        None if is_one_of(&FULL_SCHEMES, scheme) => {
            format!("this program was built without object stores; {FULL_PROGRAM}")
        }
        None => return Ok(None),
    };
    Err(ErrorKind::NotAllowed(format!("{}: {why}", path.display())).into())
}

/// Why no program reads or writes the URL that a path is, if it is such a URL.
pub fn unsupported(path: &Path) -> Option<String> {
    let Some((scheme, _)) = split_scheme(path) else { return slashes_missing(path) };
    if scheme.eq_ignore_ascii_case("file") {
        return Some(FILE_URL.to_owned());
    }
    let is_foreign = linked(scheme).is_none() && is_one_of(&FOREIGN_SCHEMES, scheme);
    is_foreign.then(|| {
        format!("{scheme}:// is not supported; use the path of a local copy, or {}", stores())
    })
}

/// What to say of a missing file whose name looks like a URL.
pub(crate) fn advice_for_url(path: &Path) -> Option<String> {
    let (scheme, _) = split_scheme(path)?;
    Some(format!(
        "files are not read from {scheme}://: use the path of a local copy, or {}",
        stores()
    ))
}

/// The addresses that this program reads and writes, or how to have a program that does.
fn stores() -> String {
    let linked = inventory::iter::<LinkedStore>.into_iter();
    let mut linked: Vec<&str> = linked.filter_map(|store| store.schemes.first().copied()).collect();
    linked.sort_unstable();
    match &linked[..] {
        [] => format!("an s3:// address, which this program was built without; {FULL_PROGRAM}"),
        schemes => format!("an address with {}://", schemes.join(":// or ")),
    }
}

/// The error for an object that has changed since this run first saw it.
pub fn changed_error() -> io::Error {
    io::Error::other(
        "it has changed since this run first read it; run again when it no longer changes",
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
    fn addresses_are_distinguished_from_paths() {
        for text in [
            "a.lcm",
            "/mem/a",
            "./mem:/b/a",
            "a:/b",
            "gs:a",
            "-",
            "C://x",
            "://x",
            "",
            "a/mem://b/c",
        ] {
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
    fn a_store_that_is_not_linked_is_not_a_missing_file() {
        let said = place("s3://bucket/a.lcm").unwrap_err();
        assert!(said.to_string().contains(FULL_PROGRAM), "{said}");
        assert!(matches!(said.kind(), ErrorKind::NotAllowed(_)));
        assert!(is_address(Path::new("s3a://bucket/a.lcm")));
    }

    #[test]
    fn urls_of_other_schemes_are_no_files_and_name_the_stores_there_are() {
        for text in ["gs://bucket/a.lcm", "HTTPS://host/a.lcm", "abfss://c@account/a.lcm"] {
            let refused = place(text).unwrap_err().to_string();
            assert!(refused.contains(":// is not supported"), "{refused}");
            assert!(refused.ends_with("or an address with mem://"), "{refused}");
            assert!(is_address(Path::new(text)), "{text}");
        }
        let refused = place("file:///tmp/a.lcm").unwrap_err().to_string();
        assert_eq!(refused, "file:///tmp/a.lcm: expected a path, found a URL; leave out `file://`");
    }

    #[test]
    fn addresses_without_their_slashes_are_no_files() {
        for text in ["s3:/bucket/a.lcm", "s3:bucket/a.lcm", "S3A:/b", "mem:/b/a", "mem:b"] {
            let refused = place(text).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{text}: an address has two slashes")), "{text}");
            assert!(refused.contains("://BUCKET/KEY; or put ./ before it"), "{refused}");
            assert!(is_address(Path::new(text)) && unsupported(Path::new(text)).is_some());
        }
        for text in ["gs:/bucket/a.lcm", "file:/a.lcm"] {
            let refused = place(text).unwrap_err().to_string();
            assert!(refused.contains(": is not supported; or put ./"), "{refused}");
        }
    }

    #[test]
    fn what_no_program_reads_is_known_without_a_store() {
        let why = |text: &str| unsupported(Path::new(text));
        assert!(why("gs://bucket/a").unwrap().starts_with("gs:// is not supported"));
        assert_eq!(why("FILE:///a").as_deref(), Some(FILE_URL));
        for text in ["s3://bucket/a", "mem://bucket/a", "foo://a", "a.lcm"] {
            assert_eq!(why(text), None, "{text}");
        }
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
        assert!(!is_address(Path::new("mem://bucket").parent().unwrap()));
        assert_eq!(file.strip_prefix(folder).unwrap(), Path::new("channel=A/part-0.parquet"));
        assert_eq!(file.with_file_name("x").to_str(), Some("mem://bucket/out/channel=A/x"));
        assert_eq!(Path::new("mem://bucket").join("x").to_str(), Some("mem://bucket/x"));
    }
}
