//! Uploads of local files: short files in one request, long ones in parts. The object appears when
//! it is complete; a failed upload is aborted.
//!
//! An upload whose answer is lost may have been carried out, and another program may have replaced
//! an object. To tell, each leaves a random number of this process and one of its own with the
//! object.

use std::borrow::Cow;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek};
use std::path::Path as Local;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, UpdateVersion,
};
use sluice_io::store::{Address, PutMode};

use crate::connector::{ClientKind, ConflictingRequests, NoConditions};
use crate::key::key;
use crate::settings::{client, max_attempts};
use crate::{errors, runtime};

/// Files up to this size are uploaded in one request.
const MAX_SINGLE_PUT: u64 = 16 << 20;
/// The smallest part. Stores require 5 MiB or more, except for the last part.
const MIN_PART: u64 = 8 << 20;
/// The most parts that stores allow.
const MAX_PARTS: u64 = 10_000;
/// Parts uploaded at a time.
const CONCURRENT_PARTS: usize = 4;
/// How often a conditional upload is begun whose connections break: the library does not repeat it.
pub(crate) const ATTEMPTS: usize = 3;
/// How long a failed upload may take to clean up.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Uploads a file.
pub(crate) fn file(at: &Address, file: &Local, how: PutMode) -> io::Result<()> {
    let mut file = File::open(file)?;
    let len = file.metadata()?.len();
    if len <= MAX_SINGLE_PUT {
        return bytes(at, read_exact(&mut file, len)?, how);
    }
    let kind = match how {
        PutMode::Replace => ClientKind::Usual,
        PutMode::New | PutMode::Update(_) => ClientKind::CompletesNew,
    };
    let (client, key, at) = (client(at.bucket(), kind)?, key(at)?, at.clone());
    let (mark, mut left) = (UploadMark::new(), max_attempts(ATTEMPTS)?);
    runtime::block_on(async move {
        loop {
            let Err(error) = put_parts(&client, &key, (&mut file, len), (&how, &mark)).await?
            else {
                return Ok(());
            };
            left -= 1;
            let stored = mark.is_stored((at.bucket(), &key), &how, error, left).await;
            if stored.map_err(|error| errors::request_error(&error))? {
                return Ok(());
            }
        }
    })
}

/// Uploads an object in one request.
pub(crate) fn bytes(at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()> {
    let (at, key, mut left) = (at.clone(), key(at)?, max_attempts(ATTEMPTS)?);
    let client = client(at.bucket(), ClientKind::Usual)?;
    runtime::block_on(async move {
        let (mark, payload) = (UploadMark::new(), PutPayload::from(bytes));
        loop {
            let put = put_once(&client, &key, payload.clone(), (&how, &mark)).await;
            let Err(error) = put else { return Ok(()) };
            left -= 1;
            let stored = mark.is_stored((at.bucket(), &key), &how, error, left).await;
            if stored.map_err(|error| errors::request_error(&error))? {
                return Ok(());
            }
        }
    })
}

/// Copies an object to a key without one.
pub(crate) async fn copy_new(
    client: &AmazonS3,
    from: &Path,
    to: &Path,
    mut left: usize,
) -> Result<(), Error> {
    loop {
        // Not every store heeds the condition of the request, so check, too.
        expect_none(client, to).await?;
        let Err(error) = client.copy_if_not_exists(from, to).await else { return Ok(()) };
        left -= 1;
        // The answer may be lost, and a copy has no mark.
        match is_same(client, from, to).await {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Error::NotFound { .. }) if left > 0 && is_unsettled(&error) => {}
            Ok(false) | Err(_) => return Err(error),
        }
    }
}

/// Whether two objects have the same bytes.
async fn is_same(client: &AmazonS3, one: &Path, other: &Path) -> Result<bool, Error> {
    let len = client.head(one).await?.size;
    if client.head(other).await?.size != len {
        return Ok(false);
    }
    let mut at = 0;
    while at < len {
        let range = at..len.min(at + MIN_PART);
        at = range.end;
        if client.get_range(one, range.clone()).await? != client.get_range(other, range).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Uploads a file in parts. The inner error is that of beginning or completing the upload, which may
/// have been carried out.
async fn put_parts(
    client: &AmazonS3,
    key: &Path,
    (file, len): (&mut File, u64),
    (how, mark): (&PutMode, &UploadMark),
) -> io::Result<Result<(), Error>> {
    if *how != PutMode::Replace
        && let Err(error) = expect_none(client, key).await
    {
        return Ok(Err(error));
    }
    let options = PutMultipartOptions { attributes: mark.attributes(), ..Default::default() };
    let mut upload = match client.put_multipart_opts(key, options).await {
        Ok(upload) => upload,
        Err(error) => return Ok(Err(error)),
    };
    let done = match send(&mut *upload, file, len).await {
        Ok(()) => Ok(complete(client, key, &mut *upload, how).await),
        Err(error) => Err(error),
    };
    if !matches!(done, Ok(Ok(()))) {
        // If this fails, a lifecycle rule of the bucket has to clean up.
        drop(tokio::time::timeout(ABORT_TIMEOUT, upload.abort()).await);
    }
    done
}

/// Uploads the parts of a file, a few at a time.
async fn send(upload: &mut dyn MultipartUpload, file: &mut File, len: u64) -> io::Result<()> {
    let part = MIN_PART.max(len.div_ceil(MAX_PARTS));
    let (mut left, mut in_flight) = (len, tokio::task::JoinSet::new());
    file.rewind()?;
    while left > 0 || !in_flight.is_empty() {
        if left > 0 && in_flight.len() < CONCURRENT_PARTS {
            let now = part.min(left);
            left -= now;
            let bytes = read_exact(file, now)?;
            in_flight.spawn(upload.put_part(bytes.into()));
            continue;
        }
        if let Some(done) = in_flight.join_next().await {
            let done = done.map_err(io::Error::other)?;
            done.map_err(|error: Error| errors::request_error(&error))?;
        }
    }
    Ok(())
}

/// Completes a multipart upload.
async fn complete(
    client: &AmazonS3,
    key: &Path,
    upload: &mut dyn MultipartUpload,
    how: &PutMode,
) -> Result<(), Error> {
    // Not every store heeds the condition of the request, so check as late as possible, too.
    if *how != PutMode::Replace {
        expect_none(client, key).await?;
    }
    match upload.complete().await {
        Err(Error::Precondition { path, source }) => Err(Error::AlreadyExists { path, source }),
        other => other.map(drop),
    }
}

/// The next `len` bytes of the file, which must have them.
fn read_exact(file: &mut File, len: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

async fn put_once(
    client: &AmazonS3,
    key: &Path,
    payload: PutPayload,
    (how, mark): (&PutMode, &UploadMark),
) -> Result<(), Error> {
    let mode = match how {
        PutMode::New => object_store::PutMode::Create,
        PutMode::Replace => object_store::PutMode::Overwrite,
        PutMode::Update(before) => object_store::PutMode::Update(UpdateVersion {
            e_tag: Some(before.version.clone()),
            version: None,
        }),
    };
    let options = |mode| PutOptions { mode, attributes: mark.attributes(), ..Default::default() };
    match client.put_opts(key, payload.clone(), options(mode)).await {
        // The server has no conditional put: check first, then put.
        Err(error) if *how != PutMode::Replace && lacks_conditions(&error) => {
            if *how == PutMode::New {
                expect_none(client, key).await?;
            }
            let mode = object_store::PutMode::Overwrite;
            client.put_opts(key, payload, options(mode)).await.map(drop)
        }
        Err(Error::Precondition { path, source }) => Err(Error::AlreadyExists { path, source }),
        other => other.map(drop),
    }
}

/// `Err` if the object exists.
async fn expect_none(client: &AmazonS3, key: &Path) -> Result<(), Error> {
    match client.head(key).await {
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(is_there(key)),
    }
}

fn is_there(key: &Path) -> Error {
    Error::AlreadyExists { path: key.to_string(), source: "it is there".into() }
}

fn lacks_conditions(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. })
        || errors::causes(error).any(|cause| cause.is::<NoConditions>())
}

/// Whether the request may have been carried out or not, or is to be repeated.
fn is_unsettled(error: &Error) -> bool {
    if errors::causes(error).any(|cause| cause.is::<ConflictingRequests>()) {
        return true;
    }
    let kind =
        errors::causes(error).find_map(|cause| Some(cause.downcast_ref::<HttpError>()?.kind()));
    matches!(kind, Some(HttpErrorKind::Interrupted | HttpErrorKind::Timeout))
}

/// What became of an upload, as the object at its key tells.
enum UploadOutcome {
    Stored,
    OtherObject,
    Absent,
}

/// Whether there is an object that this process has uploaded.
pub(crate) async fn is_own(client: &AmazonS3, key: &Path) -> Result<bool, Error> {
    let mark = match UploadMark::of(client, key).await {
        Err(Error::NotFound { .. }) => None,
        mark => mark?,
    };
    Ok(mark.is_some_and(|mark| mark.starts_with(&*PROCESS)))
}

/// The number of this process, with which its marks begin.
static PROCESS: LazyLock<String> = LazyLock::new(random);

/// A random number. The keys of each state are random.
fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// A number that tells the object of one upload from all others.
struct UploadMark(String);

impl UploadMark {
    /// The name of the number in the metadata of objects.
    const NAME: Attribute = Attribute::Metadata(Cow::Borrowed("sluice-upload"));

    fn new() -> Self {
        Self(PROCESS.clone() + &random())
    }

    /// The mark of an object.
    async fn of(client: &AmazonS3, key: &Path) -> Result<Option<String>, Error> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let found = client.get_opts(key, head).await?;
        Ok(found.attributes.get(&Self::NAME).map(|mark| mark.to_string()))
    }

    fn attributes(&self) -> Attributes {
        Attributes::from_iter([(Self::NAME, self.0.clone())])
    }

    /// Whether an upload that failed with `error` is stored. If not, it should be repeated; `Err` if
    /// it should not, or no attempts are left.
    async fn is_stored(
        &self,
        (bucket, key): (&str, &Path),
        how: &PutMode,
        error: Error,
        left: usize,
    ) -> Result<bool, Error> {
        match self.find(bucket, key).await {
            Ok(UploadOutcome::Stored) => Ok(true),
            _ if *how == PutMode::Replace || !is_unsettled(&error) => Err(error),
            Ok(UploadOutcome::OtherObject) if *how == PutMode::New => Err(is_there(key)),
            // The store does not answer at all.
            Err(Error::Generic { .. }) => Err(error),
            _ if left == 0 => Err(error),
            // Not everybody who may write may read.
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// Whether the object is from this upload: if it was carried out, its answer may be
    /// lost, and a repetition finds the object in its way.
    async fn find(&self, bucket: &str, key: &Path) -> Result<UploadOutcome, Error> {
        let fail = |error: io::Error| Error::Generic { store: "S3", source: error.into() };
        // The store may be gone since the upload began.
        let client = client(bucket, ClientKind::Usual).map_err(fail)?;
        match Self::of(&client, key).await {
            Ok(Some(mark)) if mark == self.0 => Ok(UploadOutcome::Stored),
            Ok(_) => Ok(UploadOutcome::OtherObject),
            Err(Error::NotFound { .. }) => Ok(UploadOutcome::Absent),
            Err(error) => Err(error),
        }
    }
}
