//! Stores that speak the S3 protocol.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path as File;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use sluice_io::store::{
    Address, ListDepth, ObjectState, PendingRead, PutMode, Store, changed_error,
};

use crate::connector::{ClientKind, StoreHealth};
use crate::key::key;
use crate::listing::ListingFault;
use crate::runtime::{self, PendingRequest};
use crate::settings;
use crate::{errors, upload};

/// The store for all `s3://…` addresses.
pub(crate) struct S3;

/// The client for all requests but some uploads.
fn client(bucket: &str) -> io::Result<Arc<AmazonS3>> {
    settings::client(bucket, ClientKind::Usual)
}

fn state(meta: &ObjectMeta) -> ObjectState {
    // All known stores return an ETag; without one, the time is the best substitute.
    let version = meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_rfc3339());
    ObjectState { len: meta.size, version }
}

/// The metadata of an object.
fn head(at: &Address) -> io::Result<ObjectMeta> {
    if at.key().is_empty() {
        // Stores answer for the bucket, as for an object without bytes.
        let is_empty = S3.list(at, ListDepth::All, 1)?.is_empty();
        let what = if is_empty {
            "the bucket has no objects; write s3://BUCKET/KEY, and check the name of the bucket"
        } else {
            "a bucket alone is not an object; write s3://BUCKET/KEY"
        };
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let (client, key) = (client(at.bucket())?, key(at)?);
    runtime::block_on(async move {
        client.head(&key).await.map_err(|error| errors::request_error(&error))
    })
}

/// Asks a store that did not answer lately whether it does again: an upload may take long.
fn expect_answers(at: &Address) -> io::Result<()> {
    let health = StoreHealth::of(at.bucket());
    if !health.is_silent() {
        return Ok(());
    }
    match head(at) {
        Err(error) if health.is_silent() => Err(error),
        _ => Ok(()),
    }
}

/// Not every store returns ETags in listings.
fn listed_state(meta: &ObjectMeta) -> ObjectState {
    ObjectState { len: meta.size, version: meta.e_tag.clone().unwrap_or_default() }
}

impl Store for S3 {
    fn stat(&self, at: &Address) -> io::Result<ObjectState> {
        head(at).map(|meta| state(&meta))
    }

    fn put_time(&self, at: &Address) -> io::Result<SystemTime> {
        head(at).map(|meta| meta.last_modified.into())
    }

    fn list(
        &self,
        prefix: &Address,
        depth: ListDepth,
        most: usize,
    ) -> io::Result<Vec<(String, ObjectState)>> {
        let client = client(prefix.bucket())?;
        let prefix = prefix.key().to_owned();
        runtime::block_on(async move {
            let listed = list(&client, &prefix, depth, most).await;
            listed.map_err(|error| errors::request_error(&error))
        })
    }

    fn read(&self, at: &Address, state: &ObjectState, range: Range<u64>) -> Box<dyn PendingRead> {
        let attempts = settings::max_attempts(READ_ATTEMPTS);
        let request = match (client(at.bucket()), key(at), attempts) {
            (Ok(client), Ok(key), Ok(attempts)) => {
                let state = state.clone();
                runtime::spawn(async move { read(&client, &key, &state, range, attempts).await })
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                runtime::spawn(async move { Err(error) })
            }
        };
        Box::new(S3Read(request))
    }

    fn is_own(&self, at: &Address) -> io::Result<bool> {
        let (client, key) = (client(at.bucket())?, key(at)?);
        runtime::block_on(async move {
            let own = upload::is_own(&client, &key).await;
            own.map_err(|error| errors::request_error(&error))
        })
    }

    fn put(&self, at: &Address, bytes: Bytes, how: PutMode) -> io::Result<()> {
        expect_answers(at)?;
        upload::bytes(at, bytes, how)
    }

    fn put_file(&self, at: &Address, file: &File, how: PutMode) -> io::Result<()> {
        expect_answers(at)?;
        upload::file(at, file, how)
    }

    fn copy(&self, from: &Address, to: &Address) -> io::Result<()> {
        expect_answers(from)?;
        let (client, from, to) = (client(from.bucket())?, key(from)?, key(to)?);
        runtime::block_on(async move {
            client.copy(&from, &to).await.map_err(|error| errors::request_error(&error))
        })
    }

    fn copy_new(&self, from: &Address, to: &Address) -> io::Result<()> {
        expect_answers(from)?;
        let client = settings::client(from.bucket(), ClientKind::CompletesNew)?;
        let (from, to) = (key(from)?, key(to)?);
        let attempts = settings::max_attempts(upload::ATTEMPTS)?;
        runtime::block_on(async move {
            let copied = upload::copy_new(&client, &from, &to, attempts).await;
            copied.map_err(|error| errors::request_error(&error))
        })
    }

    fn remove(&self, at: &Address) -> io::Result<()> {
        let (client, key) = (client(at.bucket())?, key(at)?);
        runtime::block_on(async move {
            match client.delete(&key).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(errors::request_error(&error)),
            }
        })
    }

    fn is_gone(&self, at: &Address) -> bool {
        StoreHealth::of(at.bucket()).is_gone()
    }
}

struct S3Read(PendingRequest<Bytes>);

impl PendingRead for S3Read {
    fn wait(self: Box<Self>) -> io::Result<Bytes> {
        self.0.wait()
    }
}

async fn read(
    client: &AmazonS3,
    key: &Path,
    expected: &ObjectState,
    range: Range<u64>,
    mut left: usize,
) -> io::Result<Bytes> {
    loop {
        let bytes = read_once(client, key, expected, range.clone()).await?;
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        left -= 1;
        if left == 0 {
            return Err(errors::wrong_length_error(bytes.len(), &range));
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

/// How often a range is read whose bytes are not as many as the store says: the library does not
/// notice it.
const READ_ATTEMPTS: usize = 4;
/// How long to wait before the next attempt.
const READ_PAUSE: Duration = Duration::from_millis(250);

async fn read_once(
    client: &AmazonS3,
    key: &Path,
    expected: &ObjectState,
    range: Range<u64>,
) -> io::Result<Bytes> {
    // ETags are quoted; a server cannot compare anything else.
    let is_etag = expected.version.contains('"');
    let options = GetOptions {
        range: Some(GetRange::Bounded(range.clone())),
        if_match: is_etag.then(|| expected.version.clone()),
        ..GetOptions::default()
    };
    let found = client.get_opts(key, options).await.map_err(|error| match error {
        // It was deleted after this run had started to read it.
        Error::NotFound { .. } => changed_error(),
        other => errors::request_error(&other),
    })?;
    // Not every server honours `If-Match`.
    if state(&found.meta) != *expected || found.range != range {
        let lacks_etag = match &found.meta.e_tag {
            None => is_etag,
            Some(_) => expected.version == found.meta.last_modified.to_rfc3339(),
        };
        let is_unsure = lacks_etag && found.meta.size == expected.len && found.range == range;
        return Err(if is_unsure { errors::etag_error() } else { changed_error() });
    }
    found.bytes().await.map_err(|error| errors::request_error(&error))
}

/// Lists the keys that start with `prefix`, page by page. The prefix need not end with a slash.
async fn list(
    client: &AmazonS3,
    prefix: &str,
    depth: ListDepth,
    most: usize,
) -> Result<Vec<(String, ObjectState)>, Error> {
    let (mut found, mut page_token) = (Vec::new(), None::<String>);
    let (mut tokens, mut max_keys) = (BTreeSet::new(), (most < PAGE).then_some(most));
    loop {
        let options = PaginatedListOptions {
            delimiter: (depth == ListDepth::One).then_some("/".into()),
            max_keys,
            page_token: page_token.clone(),
            ..PaginatedListOptions::default()
        };
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let page = client.list_paginated(prefix, options).await?;
        let found_before = found.len();
        for meta in &page.result.objects {
            if !is_folder_marker(client, prefix.unwrap_or_default(), meta).await? {
                found.push((meta.location.to_string(), listed_state(meta)));
            }
        }
        let next = page.page_token.filter(|token| !token.is_empty());
        if found.len() >= most {
            found.truncate(most);
            return Ok(found);
        }
        let Some(next) = next else {
            let keys = page.result.objects.len() + page.result.common_prefixes.len();
            if max_keys.is_none_or(|most| keys < most) {
                return Ok(found);
            }
            // Stores without version 2 of listings send no token, and some of the keys are folder
            // markers. Without a limit, it is an error if more keys follow.
            found.truncate(found_before);
            max_keys = None;
            continue;
        };
        if !tokens.insert(next.clone()) {
            return Err(Error::Generic { store: "S3", source: ListingFault::Repeats.into() });
        }
        page_token = Some(next);
    }
}

/// Whether an object is a folder marker: empty, with a key that ends with a slash, as other
/// programs create for folders. The library strips the slash.
async fn is_folder_marker(
    client: &AmazonS3,
    prefix: &str,
    meta: &ObjectMeta,
) -> Result<bool, Error> {
    if !meta.location.as_ref().starts_with(prefix) {
        return Ok(true);
    }
    if meta.size > 0 {
        return Ok(false);
    }
    match client.head(&meta.location).await {
        Ok(_) => Ok(false),
        Err(Error::NotFound { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The most keys that a server returns per page.
const PAGE: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use object_store::ClientOptions;
    use object_store::aws::AmazonS3Builder;
    use object_store::client::{
        HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
    };

    use super::*;
    use crate::listing;

    /// A store that answers the first requests with a function of their query: the page of a
    /// listing. It has no objects.
    #[derive(Clone, Debug)]
    struct Pages(fn(&str) -> String, Arc<AtomicUsize>);

    impl HttpConnector for Pages {
        fn connect(&self, _: &ClientOptions) -> Result<HttpClient, Error> {
            Ok(HttpClient::new(self.clone()))
        }
    }

    #[async_trait]
    impl HttpService for Pages {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let is_first = self.1.fetch_add(1, Ordering::Relaxed) < 100;
            let most_keys = listing::most_keys(&request).filter(|_| is_first);
            let Some(most_keys) = most_keys else {
                let missing = HttpResponse::new(Bytes::new().into());
                let (mut head, body) = missing.into_parts();
                head.status = http::StatusCode::NOT_FOUND;
                return Ok(HttpResponse::from_parts(head, body));
            };
            let page = (self.0)(request.uri().query().unwrap());
            let page = format!("<ListBucketResult>{page}</ListBucketResult>");
            listing::checked(HttpResponse::new(Bytes::from(page).into()), most_keys).await
        }
    }

    /// The keys that are listed, or the error.
    fn keys(pages: fn(&str) -> String, most: usize) -> Result<Vec<String>, String> {
        let client = AmazonS3Builder::new().with_bucket_name("b").with_skip_signature(true);
        let client = client.with_http_connector(Pages(pages, Arc::default())).build().unwrap();
        let listed = runtime::block_on(async move {
            list(&client, "f/", ListDepth::All, most).await.map_err(|e| errors::request_error(&e))
        });
        let listed = listed.map_err(|error| error.to_string())?;
        Ok(listed.into_iter().map(|(key, _)| key).collect())
    }

    fn object(key: &str, size: u64) -> String {
        format!(
            "<Contents><Key>{key}</Key><Size>{size}</Size>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
    }

    /// The page of a store that does not know version 2 of listings: it never sends a token.
    fn page_of_version_1(query: &str, objects: &[(&str, u64)]) -> String {
        let limit = query.split('&').find_map(|parameter| parameter.strip_prefix("max-keys="));
        let len = limit.map_or(objects.len(), |most| most.parse().unwrap()).min(objects.len());
        let page: String = objects[..len].iter().map(|(key, size)| object(key, *size)).collect();
        format!("<IsTruncated>{}</IsTruncated>{page}", len < objects.len())
    }

    #[test]
    fn a_part_of_a_folder_is_listed_without_version_2_of_listings() {
        const FOLDER: [(&str, u64); 3] = [("f/", 0), ("f/a", 7), ("f/b", 7)];
        let plain = |query: &str| page_of_version_1(query, &FOLDER[1..]);
        assert_eq!(keys(plain, 1).unwrap(), ["f/a"]);
        assert_eq!(keys(plain, 2).unwrap(), ["f/a", "f/b"]);
        assert_eq!(keys(plain, usize::MAX).unwrap(), ["f/a", "f/b"]);
        // The only key that was asked for is the folder itself.
        let marked = |query: &str| page_of_version_1(query, &FOLDER);
        assert_eq!(keys(marked, 1).unwrap(), ["f/a"]);
        assert_eq!(keys(marked, 2).unwrap(), ["f/a", "f/b"]);
        let empty = |query: &str| page_of_version_1(query, &FOLDER[..1]);
        assert!(keys(empty, 1).unwrap().is_empty());
    }

    #[test]
    fn keys_behind_a_full_page_are_not_lost_without_version_2_of_listings() {
        // This store sends no more than one key even if it is not asked to.
        let marker = |_: &str| format!("<IsTruncated>true</IsTruncated>{}", object("f/", 0));
        let error = keys(marker, 1).unwrap_err();
        assert!(error.contains("IsTruncated without NextContinuationToken"), "{error}");
    }

    #[test]
    fn a_page_that_returns_ends_a_listing() {
        let alternates = |query: &str| {
            let (key, next) = match query.contains("continuation-token=A") {
                true => ("f/b", "B"),
                false => ("f/a", "A"),
            };
            format!(
                "<IsTruncated>true</IsTruncated>{}\
                 <NextContinuationToken>{next}</NextContinuationToken>",
                object(key, 7)
            )
        };
        assert_eq!(keys(alternates, 2).unwrap(), ["f/a", "f/b"]);
        let error = keys(alternates, usize::MAX).unwrap_err();
        assert!(error.contains("repeats a page of a listing"), "{error}");
    }
}
