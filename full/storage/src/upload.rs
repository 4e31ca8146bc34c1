//! Uploads of local files: short files in one request, long ones in parts. The object appears when
//! it is complete; a failed upload is aborted.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path as Local;
use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use sluice_io::store::PutMode;

use crate::{errors, runtime};

/// Files up to this size are uploaded in one request.
const MAX_SINGLE_PUT: u64 = 16 << 20;
/// The smallest part. Stores require 5 MiB or more, except for the last part.
const MIN_PART: u64 = 8 << 20;
/// The most parts that stores allow.
const MAX_PARTS: u64 = 10_000;
/// Parts uploaded at a time.
const CONCURRENT_PARTS: usize = 4;

/// Uploads a file.
pub(crate) fn file(client: Arc<AmazonS3>, key: Path, file: &Local, how: PutMode) -> io::Result<()> {
    let mut file = File::open(file)?;
    let len = file.metadata()?.len();
    if len <= MAX_SINGLE_PUT {
        let bytes = read_exact(&mut file, len)?;
        return runtime::block_on(async move {
            let put = put(&client, &key, bytes.into(), how).await;
            put.map_err(|error| errors::request_error(&error))
        });
    }
    let part = MIN_PART.max(len.div_ceil(MAX_PARTS));
    runtime::block_on(async move {
        if how == PutMode::New {
            let free = expect_none(&client, &key).await;
            free.map_err(|error| errors::request_error(&error))?;
        }
        let begun = client.put_multipart(&key).await;
        let mut upload = begun.map_err(|error| errors::request_error(&error))?;
        let sent = send(&mut *upload, file, len, part).await;
        let done = match sent {
            Ok(()) => complete(&client, &key, &mut *upload, how).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            // If this fails, a lifecycle rule of the bucket has to clean up.
            drop(upload.abort().await);
        }
        done
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
    how: PutMode,
) -> io::Result<()> {
    // Completing cannot be conditional in the protocol: check as late as possible.
    if how == PutMode::New {
        let free = expect_none(client, key).await;
        free.map_err(|error| errors::request_error(&error))?;
    }
    upload.complete().await.map(drop).map_err(|error| errors::request_error(&error))
}

/// The next `len` bytes of the file, which must have them.
fn read_exact(file: &mut File, len: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

/// Uploads an object in one request.
pub(crate) async fn put(
    client: &AmazonS3,
    key: &Path,
    payload: PutPayload,
    how: PutMode,
) -> Result<(), Error> {
    let mode = match how {
        PutMode::New => object_store::PutMode::Create,
        PutMode::Replace => object_store::PutMode::Overwrite,
    };
    match client.put_opts(key, payload.clone(), mode.into()).await {
        // The server has no conditional put: check first, then put.
        Err(Error::NotImplemented { .. }) if how == PutMode::New => {
            expect_none(client, key).await?;
            client.put_opts(key, payload, object_store::PutMode::Overwrite.into()).await.map(drop)
        }
        other => other.map(drop),
    }
}

/// `Err` if the object exists.
async fn expect_none(client: &AmazonS3, key: &Path) -> Result<(), Error> {
    match client.head(key).await {
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::AlreadyExists { path: key.to_string(), source: "it is there".into() }),
    }
}
