//! A store in memory, for tests: `mem://`. Records requests, and can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::{
    Address, LinkedStore, ListDepth, ObjectState, PendingRead, PutMode, Store, changed_error,
};

/// All buckets of all tests. Each test has a bucket of its own.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<BTreeMap<String, Bucket>>);

#[derive(Default)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<String, (Bytes, u64)>,
    versions: u64,
    /// Those that were put, not set or copied.
    put: BTreeSet<u64>,
    /// The requests so far, such as `read a.lcm 0..4`.
    pub(crate) asked: Vec<String>,
    /// Puts of these keys fail.
    pub(crate) broken: Vec<String>,
    /// Puts of this key are carried out, but fail.
    pub(crate) unanswered: Option<String>,
    /// Before this key is put, another program writes these objects, each with its key as text.
    pub(crate) overtaken: Option<(&'static str, Vec<&'static str>)>,
    /// Copies to this key fail.
    pub(crate) uncopied: Option<String>,
    /// Copies with this text in their key are made, but fail.
    pub(crate) unanswered_copy: Option<&'static str>,
    /// Objects with this text in their key cannot be removed.
    pub(crate) undeletable: Option<&'static str>,
    /// From the put of this key on, nothing is answered.
    pub(crate) last_put: Option<String>,
    is_gone: bool,
}

pub(crate) static MEMORY: MemoryStore = MemoryStore(Mutex::new(BTreeMap::new()));

inventory::submit! { LinkedStore { schemes: &["mem", "memory"], store: &MEMORY } }

impl MemoryStore {
    pub(crate) fn with<T>(&self, bucket: &str, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut buckets = self.buckets();
        act(buckets.entry(bucket.to_owned()).or_default())
    }

    /// Writes an object as another program would.
    pub(crate) fn set(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        self.with(bucket, |bucket| bucket.set(key, bytes.into()));
    }

    pub(crate) fn bytes(&self, bucket: &str, key: &str) -> Option<Bytes> {
        self.with(bucket, |bucket| bucket.objects.get(key).map(|(bytes, _)| bytes.clone()))
    }

    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        self.with(bucket, |bucket| bucket.objects.keys().cloned().collect())
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(
        &self,
        at: &Address,
        what: &str,
        act: impl FnOnce(&mut Bucket) -> io::Result<T>,
    ) -> io::Result<T> {
        self.with(at.bucket(), |bucket| {
            bucket.asked.push(format!("{what} {}", at.key()));
            bucket.is_gone |= what == "put" && bucket.last_put.as_deref() == Some(at.key());
            match bucket.is_gone {
                true => Err(io::Error::other("the store does not answer")),
                false => act(bucket),
            }
        })
    }
}

impl Bucket {
    fn set(&mut self, key: &str, bytes: Bytes) {
        self.versions += 1;
        self.objects.insert(key.to_owned(), (bytes, self.versions));
    }

    fn get(&self, key: &str) -> io::Result<(&Bytes, ObjectState)> {
        let (bytes, version) = self.objects.get(key).ok_or(io::ErrorKind::NotFound)?;
        Ok((bytes, ObjectState { len: bytes.len() as u64, version: version.to_string() }))
    }
}

struct ReadyRead(io::Result<Bytes>);

impl PendingRead for ReadyRead {
    fn wait(self: Box<Self>) -> io::Result<Bytes> {
        self.0
    }
}

impl Store for MemoryStore {
    fn stat(&self, at: &Address) -> io::Result<ObjectState> {
        self.ask(at, "look", |bucket| Ok(bucket.get(at.key())?.1))
    }

    fn put_time(&self, at: &Address) -> io::Result<SystemTime> {
        // Objects are never old.
        self.ask(at, "look", |bucket| bucket.get(at.key()).map(|_| SystemTime::now()))
    }

    fn list(
        &self,
        at: &Address,
        depth: ListDepth,
        most: usize,
    ) -> io::Result<Vec<(String, ObjectState)>> {
        self.ask(at, "list", |bucket| {
            let is_near = |key: &&String| {
                let rest = key.strip_prefix(at.key());
                rest.is_some_and(|rest| depth == ListDepth::All || !rest.contains('/'))
            };
            let keys = bucket.objects.keys().filter(is_near).take(most);
            keys.map(|key| Ok((key.clone(), bucket.get(key)?.1))).collect()
        })
    }

    fn read(&self, at: &Address, state: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead> {
        let what = format!("read {}..{}", range.start, range.end);
        Box::new(ReadyRead(self.ask(at, &what, |bucket| {
            let (bytes, now) = bucket.get(at.key())?;
            if now != *state {
                return Err(changed_error());
            }
            Ok(bytes.slice(range.start as usize..range.end as usize))
        })))
    }

    fn is_own(&self, at: &Address) -> io::Result<bool> {
        self.ask(at, "look", |bucket| {
            let version = bucket.objects.get(at.key()).map(|(_, version)| version);
            Ok(version.is_some_and(|version| bucket.put.contains(version)))
        })
    }

    fn put(&self, at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()> {
        self.ask(at, "put", |bucket| {
            if let Some((_, keys)) = bucket.overtaken.take_if(|(before, _)| *before == at.key()) {
                keys.into_iter().for_each(|key| bucket.set(key, key.into()));
            }
            if bucket.broken.iter().any(|key| key == at.key()) {
                return Err(io::Error::other("the store is broken"));
            }
            let is_in_the_way = match how {
                PutMode::New => bucket.objects.contains_key(at.key()),
                PutMode::Replace => false,
                PutMode::Update(state) => bucket.get(at.key()).ok().map(|(_, s)| s) != Some(state),
            };
            if is_in_the_way {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            bucket.set(at.key(), bytes);
            bucket.put.insert(bucket.versions);
            if bucket.unanswered.as_deref() == Some(at.key()) {
                return Err(io::Error::other("the store does not answer"));
            }
            Ok(())
        })
    }

    fn put_file(&self, at: &Address, file: &Path, how: PutMode) -> io::Result<()> {
        self.put(at, fs::read(file)?.into(), how)
    }

    fn copy(&self, from: &Address, to: &Address) -> io::Result<()> {
        self.ask(from, "copy", |bucket| {
            if bucket.uncopied.as_deref() == Some(to.key()) {
                return Err(io::Error::other("the store does not copy"));
            }
            let bytes = bucket.get(from.key())?.0.clone();
            bucket.set(to.key(), bytes);
            match bucket.unanswered_copy {
                Some(text) if to.key().contains(text) => {
                    Err(io::Error::other("the store does not answer"))
                }
                _ => Ok(()),
            }
        })
    }

    fn copy_new(&self, from: &Address, to: &Address) -> io::Result<()> {
        self.ask(from, "copy", |bucket| {
            if bucket.objects.contains_key(to.key()) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let bytes = bucket.get(from.key())?.0.clone();
            bucket.set(to.key(), bytes);
            Ok(())
        })
    }

    fn remove(&self, at: &Address) -> io::Result<()> {
        self.ask(at, "remove", |bucket| {
            if bucket.undeletable.is_some_and(|text| at.key().contains(text)) {
                return Err(io::Error::other("the store does not remove it"));
            }
            bucket.objects.remove(at.key());
            Ok(())
        })
    }

    fn is_gone(&self, at: &Address) -> bool {
        self.with(at.bucket(), |bucket| bucket.is_gone)
    }
}
