//! Uploads of local files: short files in one request, long ones in parts. The object appears when
//! it is complete; a failed upload is aborted.
//!
//! An upload whose answer is lost may have been carried out. To tell, each leaves its own random
//! number with the object.

use std::borrow::Cow;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path as Local;
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

use crate::connector::NoConditions;
use crate::settings::{ClientKind, client, max_attempts};
use crate::{errors, runtime, s3};

/// Files up to this size are uploaded in one request.
const MAX_SINGLE_PUT: u64 = 16 << 20;
/// The smallest part. Stores require 5 MiB or more, except for the last part.
const MIN_PART: u64 = 8 << 20;
/// The most parts that stores allow.
const MAX_PARTS: u64 = 10_000;
/// Parts uploaded at a time.
const CONCURRENT_PARTS: usize = 4;
/// How often a conditional upload is begun whose connections break: the library does not repeat it.
const ATTEMPTS: usize = 3;
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
    let (client, key, at) = (client(at.bucket(), kind)?, s3::key(at)?, at.clone());
    let part = MIN_PART.max(len.div_ceil(MAX_PARTS));
    runtime::block_on(async move {
        if how != PutMode::Replace {
            let free = expect_none(&client, &key).await;
            free.map_err(|error| errors::request_error(&error))?;
        }
        let mark = UploadMark::new();
        let options = PutMultipartOptions { attributes: mark.attributes(), ..Default::default() };
        let begun = client.put_multipart_opts(&key, options).await;
        let mut upload = begun.map_err(|error| errors::request_error(&error))?;
        let sent = send(&mut *upload, file, len, part).await;
        let done = match sent {
            Ok(()) => {
                let done = complete(&client, &key, &mut *upload, &how).await;
                let is_stored = done.is_err()
                    && matches!(mark.find(at.bucket(), &key).await, Ok(UploadOutcome::Stored));
                let done = if is_stored { Ok(()) } else { done };
                done.map_err(|error| errors::request_error(&error))
            }
            Err(error) => Err(error),
        };
        if done.is_err() {
            // If this fails, a lifecycle rule of the bucket has to clean up.
            drop(tokio::time::timeout(ABORT_TIMEOUT, upload.abort()).await);
        }
        done
    })
}

/// Uploads an object in one request.
pub(crate) fn bytes(at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()> {
    let (at, key, attempts) = (at.clone(), s3::key(at)?, max_attempts(ATTEMPTS)?);
    let client = client(at.bucket(), ClientKind::Usual)?;
    runtime::block_on(async move {
        let put = put((&client, at.bucket(), &key), bytes.into(), how, attempts).await;
        put.map_err(|error| errors::request_error(&error))
    })
}

/// Uploads the parts of a file, a few at a time.
async fn send(
    upload: &mut dyn MultipartUpload,
    mut file: File,
    len: u64,
    part: u64,
) -> io::Result<()> {
    let (mut left, mut in_flight) = (len, tokio::task::JoinSet::new());
    while left > 0 || !in_flight.is_empty() {
        if left > 0 && in_flight.len() < CONCURRENT_PARTS {
            let now = part.min(left);
            left -= now;
            let bytes = read_exact(&mut file, now)?;
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

async fn put(
    (client, bucket, key): (&AmazonS3, &str, &Path),
    payload: PutPayload,
    how: PutMode,
    attempts: usize,
) -> Result<(), Error> {
    let (mark, mut left) = (UploadMark::new(), attempts);
    loop {
        let done = put_once(client, key, payload.clone(), (&how, &mark)).await;
        let Err(error) = done else { return Ok(()) };
        let found = mark.find(bucket, key).await;
        if matches!(found, Ok(UploadOutcome::Stored)) {
            return Ok(());
        }
        left -= 1;
        if how == PutMode::Replace || !is_unsettled(&error) {
            return Err(error);
        }
        match found {
            Ok(UploadOutcome::OtherObject) if how == PutMode::New => return Err(is_there(key)),
            // The store does not answer at all.
            Err(Error::Generic { .. }) => return Err(error),
            _ if left == 0 => return Err(error),
            // Not everybody who may write may read.
            Ok(_) | Err(_) => {}
        }
    }
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

/// Whether the request may have been carried out or not.
fn is_unsettled(error: &Error) -> bool {
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

/// A number that tells the object of one upload from all others.
struct UploadMark(String);

impl UploadMark {
    /// The name of the number in the metadata of objects.
    const NAME: Attribute = Attribute::Metadata(Cow::Borrowed("sluice-upload"));

    fn new() -> Self {
        // The keys of each are random.
        let random = || RandomState::new().hash_one(std::process::id());
        Self(format!("{:016x}{:016x}", random(), random()))
    }

    fn attributes(&self) -> Attributes {
        Attributes::from_iter([(Self::NAME, self.0.clone())])
    }

    /// Whether the object is from this upload: if it was carried out, its answer may be
    /// lost, and a repetition finds the object in its way.
    async fn find(&self, bucket: &str, key: &Path) -> Result<UploadOutcome, Error> {
        let fail = |error: io::Error| Error::Generic { store: "S3", source: error.into() };
        // The store may be gone since the upload began.
        let client = client(bucket, ClientKind::Usual).map_err(fail)?;
        let head = GetOptions { head: true, ..GetOptions::default() };
        match client.get_opts(key, head).await {
            Ok(found) => {
                let mark = found.attributes.get(&Self::NAME);
                let is_ours = mark.is_some_and(|mark| **mark == *self.0);
                Ok(if is_ours { UploadOutcome::Stored } else { UploadOutcome::OtherObject })
            }
            Err(Error::NotFound { .. }) => Ok(UploadOutcome::Absent),
            Err(error) => Err(error),
        }
    }
}
