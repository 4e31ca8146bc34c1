//! Inputs of targets as objects of a store in memory, `memory://`: opening a file takes longer than
//! reading one of a few kilobytes, and a target opens it for each split. Stores nothing else. That
//! of the tests of `sluice-io` keeps every request; as a feature, it would be in every program that
//! is built together with this crate.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use sluice_io::files::forget_states;
use sluice_io::store::{
    Address, ListDepth, ObjectState, PendingRead, PutMode, Store, changed_error,
};

static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // One per thread, so that concurrent tests are separate.
    static BUCKET: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// Makes an object of this thread, replacing one of this name, and returns its address.
pub(crate) fn object(name: &str, bytes: Vec<u8>) -> PathBuf {
    let address = BUCKET.with(|bucket| format!("memory://{bucket}/{name}"));
    let version = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    let state = ObjectState { len: bytes.len() as u64, version };
    MEMORY.objects().insert(address.clone(), (bytes.into(), state));
    forget_states();
    address.into()
}

sluice_model::register! { store ["memory"]: &MEMORY }

static MEMORY: Memory = Memory(Mutex::new(BTreeMap::new()));

/// Objects by their addresses.
struct Memory(Mutex<BTreeMap<String, (Bytes, ObjectState)>>);

impl Memory {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, (Bytes, ObjectState)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, at: &Address) -> io::Result<(Bytes, ObjectState)> {
        let found = self.objects().get(&at.to_string()).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct FinishedRead(io::Result<Bytes>);

impl PendingRead for FinishedRead {
    fn wait(self: Box<Self>) -> io::Result<Bytes> {
        self.0
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Store for Memory {
    fn stat(&self, at: &Address) -> io::Result<ObjectState> {
        Ok(self.get(at)?.1)
    }

    fn read(&self, at: &Address, state: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead> {
        let read = self.get(at).and_then(|(bytes, now)| {
            if now != *state {
                return Err(changed_error());
            }
            let range = range.start as usize..range.end as usize;
            if bytes.get(range.clone()).is_none() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(bytes.slice(range))
        });
        Box::new(FinishedRead(read))
    }

    fn put_time(&self, _: &Address) -> io::Result<SystemTime> {
        unsupported()
    }

    fn list(&self, _: &Address, _: ListDepth, _: usize) -> io::Result<Vec<(String, ObjectState)>> {
        unsupported()
    }

    fn is_own(&self, _: &Address) -> io::Result<bool> {
        unsupported()
    }

    fn put(&self, _: &Address, _: Bytes, _: PutMode) -> io::Result<()> {
        unsupported()
    }

    fn put_file(&self, _: &Address, _: &Path, _: PutMode) -> io::Result<()> {
        unsupported()
    }

    fn copy(&self, _: &Address, _: &Address) -> io::Result<()> {
        unsupported()
    }

    fn copy_new(&self, _: &Address, _: &Address) -> io::Result<()> {
        unsupported()
    }

    fn remove(&self, _: &Address) -> io::Result<()> {
        unsupported()
    }

    fn is_gone(&self, _: &Address) -> bool {
        false
    }
}
