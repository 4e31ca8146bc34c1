//! A store in memory for tests, `counted://`, which keeps the ranges that are read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use sluice_io::store::{Address, ListDepth, ObjectState, PendingRead, PutMode, Store};
use sluice_model::LinkedStore;

sluice_model::inventory::submit! { LinkedStore { schemes: &["counted"], store: &COUNTED } }

static COUNTED: Counted = Counted(Mutex::new(BTreeMap::new()));

/// Objects by their addresses.
struct Counted(Mutex<BTreeMap<String, Object>>);

struct Object {
    bytes: Bytes,
    /// The ranges that were read.
    requests: Vec<Range<u64>>,
}

/// Makes an object, and returns its address. Each test has objects of its own.
pub(super) fn object(name: &str, bytes: Vec<u8>) -> PathBuf {
    let address = format!("counted://tests/{name}");
    let object = Object { bytes: bytes.into(), requests: Vec::new() };
    COUNTED.objects().insert(address.clone(), object);
    address.into()
}

/// The ranges of an object that were read since the last call.
pub(super) fn take_requests(address: &Path) -> Vec<Range<u64>> {
    let mut objects = COUNTED.objects();
    let object = objects.get_mut(&address.display().to_string());
    object.map(|object| std::mem::take(&mut object.requests)).unwrap_or_default()
}

impl Counted {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Store for Counted {
    fn stat(&self, at: &Address) -> io::Result<ObjectState> {
        let objects = self.objects();
        let object = objects.get(&at.to_string()).ok_or(io::ErrorKind::NotFound)?;
        Ok(ObjectState { len: object.bytes.len() as u64, version: "1".to_owned() })
    }

    fn read(&self, at: &Address, _: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead> {
        let mut objects = self.objects();
        let Some(object) = objects.get_mut(&at.to_string()) else {
            return Box::new(FinishedRead(unsupported()));
        };
        object.requests.push(range.clone());
        let bytes = object.bytes.slice(range.start as usize..range.end as usize);
        Box::new(FinishedRead(Ok(bytes)))
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
