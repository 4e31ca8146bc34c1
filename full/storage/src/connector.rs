//! The HTTP client below the library's: notes whether the store answers, adds the condition that
//! the library cannot add to uploads in parts, and tells the library which answers to conditions
//! are not worth a repetition.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, HeaderValue, Result};

use crate::settings::{ClientKind, RETRY_TIMEOUT};

/// The timeout of requests without a body to a store that is gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the store of a bucket answers. Failures of the server are no answers.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    last: Option<Instant>,
    /// The first attempt since then that failed.
    silent_since: Option<Instant>,
    is_gone: bool,
}

impl StoreHealth {
    pub(crate) fn of(bucket: &str) -> Arc<Self> {
        static ALL: LazyLock<Mutex<BTreeMap<String, Arc<StoreHealth>>>> =
            LazyLock::new(Mutex::default);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(bucket.to_owned()).or_default())
    }

    /// Whether the store has answered this process, and is not gone.
    pub(crate) fn is_reached(&self) -> bool {
        let answers = self.answers();
        answers.last.is_some() && !answers.is_gone
    }

    /// Whether the store has not answered for as long as requests are retried.
    pub(crate) fn is_gone(&self) -> bool {
        self.answers().is_gone
    }

    fn note(&self, is_answer: bool, started: Instant, now: Instant) {
        let mut answers = self.answers();
        if is_answer {
            *answers = Answers { last: Some(now), ..Answers::default() };
            return;
        }
        // Others may have been answered while this one was not.
        let since = answers.last.map_or(started, |last| last.max(started));
        let since = *answers.silent_since.get_or_insert(since);
        answers.is_gone |= now.saturating_duration_since(since) >= RETRY_TIMEOUT;
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the HTTP clients of one kind of client.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) kind: ClientKind,
    pub(crate) health: Arc<StoreHealth>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let (kind, health) = (self.kind, Arc::clone(&self.health));
        Ok(HttpClient::new(ConditionalService { client, kind, health }))
    }
}

#[derive(Debug)]
struct ConditionalService {
    client: HttpClient,
    kind: ClientKind,
    health: Arc<StoreHealth>,
}

#[async_trait]
impl HttpService for ConditionalService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let condition = PutCondition::of(&request);
        let started = Instant::now();
        let answer = if self.kind == ClientKind::CompletesNew && completes_upload(&request) {
            self.complete_new(request).await
        } else if self.health.is_gone() && !["PUT", "POST"].contains(&request.method().as_str()) {
            let late = |_| Err(HttpError::new(HttpErrorKind::Timeout, NoAnswer));
            let answer = tokio::time::timeout(GONE_TIMEOUT, self.client.execute(request)).await;
            answer.unwrap_or_else(late)
        } else {
            self.client.execute(request).await
        };
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let failure = condition.and_then(|condition| condition.failure(status));
        let is_answer = failure.is_some() || (1..500).contains(&status);
        self.health.note(is_answer, started, Instant::now());
        failure.map_or(answer, Err)
    }
}

impl ConditionalService {
    /// Completes an upload if there is no such object. The header need not be signed.
    async fn complete_new(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut conditional = request.clone();
        conditional.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        let answer = self.client.execute(conditional).await?;
        // Some stores refuse headers that they do not know.
        if answer.status().as_u16() == NOT_IMPLEMENTED {
            return self.client.execute(request).await;
        }
        Ok(answer)
    }
}

const CONFLICT: u16 = 409;
const NOT_IMPLEMENTED: u16 = 501;

fn completes_upload(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method().as_str() == "POST" && query.starts_with("uploadId=")
}

/// The condition of an upload in one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PutCondition {
    IsNew,
    IsUnchanged,
}

impl PutCondition {
    fn of(request: &HttpRequest) -> Option<Self> {
        let has = |name| request.headers().contains_key(name);
        match request.method().as_str() {
            "PUT" if has("if-none-match") => Some(Self::IsNew),
            "PUT" if has("if-match") => Some(Self::IsUnchanged),
            _ => None,
        }
    }

    /// An error in place of the answer with this status, if the library would misunderstand it.
    fn failure(self, status: u16) -> Option<HttpError> {
        match status {
            // The library would repeat the request for a minute.
            NOT_IMPLEMENTED => Some(HttpError::new(HttpErrorKind::Unknown, NoConditions)),
            // The library would take it for an object in the way. It knows that of `IsUnchanged`.
            CONFLICT if self == Self::IsNew => {
                Some(HttpError::new(HttpErrorKind::Interrupted, ConflictingRequests))
            }
            _ => None,
        }
    }
}

/// The store does not support conditional uploads.
#[derive(Debug)]
pub(crate) struct NoConditions;

impl fmt::Display for NoConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it does not support conditional uploads (status 501)")
    }
}

impl std::error::Error for NoConditions {}

#[derive(Debug)]
struct ConflictingRequests;

impl fmt::Display for ConflictingRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it reports other requests for the same object (status 409); try again")
    }
}

impl std::error::Error for ConflictingRequests {}

#[derive(Debug)]
struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it does not answer any longer")
    }
}

impl std::error::Error for NoAnswer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_gone_after_a_minute_without_an_answer_until_it_answers() {
        let (health, begin) = (StoreHealth::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        health.note(false, at(0), at(1));
        assert!(!health.is_reached() && !health.is_gone());
        health.note(true, at(1), at(2));
        assert!(health.is_reached());
        // Nothing was asked for an hour.
        health.note(false, at(4000), at(4001));
        health.note(false, at(4002), at(4059));
        assert!(health.is_reached());
        health.note(false, at(4059), at(4060));
        assert!(health.is_gone() && !health.is_reached());
        health.note(true, at(4061), at(4062));
        assert!(health.is_reached() && !health.is_gone());
    }

    #[test]
    fn a_store_that_answers_others_is_not_gone() {
        let (health, begin) = (StoreHealth::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        health.note(true, at(30), at(31));
        health.note(false, at(0), at(60));
        assert!(health.is_reached());
        let silent = StoreHealth::default();
        silent.note(true, at(0), at(1));
        silent.note(false, at(2), at(62));
        assert!(silent.is_gone());
    }
}
