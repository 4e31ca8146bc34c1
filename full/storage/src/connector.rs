//! The HTTP client below the library's: notes whether the store answers, adds the condition that
//! the library cannot add to uploads in parts, tells the library which answers to conditions
//! are not worth a repetition, and checks that listings are whole.

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

use crate::listing;

/// How long transient failures are retried.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKind {
    Usual,
    /// It completes uploads in parts only if there is no such object yet.
    CompletesNew,
}

/// How long a request may take once the store is gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often requests look whether it is.
const GONE_POLL: Duration = Duration::from_secs(1);

/// Whether the store of a bucket answers. Failures of the server are no answers.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    last: Option<Instant>,
    /// Since when there was no answer, if an attempt has failed since the last one.
    silent_since: Option<Instant>,
}

impl Answers {
    fn is_gone(&self, now: Instant) -> bool {
        let silence = self.silent_since.map(|since| now.saturating_duration_since(since));
        silence.is_some_and(|silence| silence >= RETRY_TIMEOUT)
    }
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
        answers.last.is_some() && !answers.is_gone(Instant::now())
    }

    /// Whether nothing was answered since the last attempt that failed.
    pub(crate) fn is_silent(&self) -> bool {
        self.answers().silent_since.is_some()
    }

    /// Whether the store has not answered for as long as requests are retried.
    pub(crate) fn is_gone(&self) -> bool {
        self.answers().is_gone(Instant::now())
    }

    fn note(&self, is_answer: bool, started: Instant, now: Instant) {
        let mut answers = self.answers();
        if is_answer {
            *answers = Answers { last: Some(now), silent_since: None };
            return;
        }
        // Others may have been answered while this one was not.
        let since = answers.last.map_or(started, |last| last.max(started));
        answers.silent_since.get_or_insert(since);
    }

    /// Ends when the store has been gone for a while.
    async fn wait_until_gone(&self) {
        loop {
            while !self.is_gone() {
                tokio::time::sleep(GONE_POLL).await;
            }
            tokio::time::sleep(GONE_TIMEOUT).await;
            // It may have answered meanwhile.
            if self.is_gone() {
                return;
            }
        }
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
    /// Whether the store was reached when the client was made, so that it repeats requests for long.
    pub(crate) is_reached: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let Self { kind, ref health, is_reached } = *self;
        let health = Arc::clone(health);
        Ok(HttpClient::new(ConditionalService { client, kind, health, is_reached }))
    }
}

#[derive(Debug)]
struct ConditionalService {
    client: HttpClient,
    kind: ClientKind,
    health: Arc<StoreHealth>,
    is_reached: bool,
}

#[async_trait]
impl HttpService for ConditionalService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes_new = self.kind == ClientKind::CompletesNew && completes_upload(&request);
        let condition =
            if completes_new { Some(PutCondition::IsNew) } else { PutCondition::of(&request) };
        let started = Instant::now();
        let most_keys = listing::most_keys(&request);
        let answer = async {
            if completes_new {
                return self.complete_new(request).await;
            }
            let answer = self.client.execute(request).await?;
            match most_keys {
                Some(most_keys) => listing::checked(answer, most_keys).await,
                None => Ok(answer),
            }
        };
        let answer = tokio::select! {
            answer = answer => answer,
            () = self.health.wait_until_gone() => {
                Err(HttpError::new(HttpErrorKind::Unknown, NoAnswer))
            }
        };
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let failure = condition.and_then(|condition| condition.failure(status));
        let is_answer = failure.is_some()
            || (1..500).contains(&status)
            || answer.as_ref().is_err_and(listing::is_fault);
        self.health.note(is_answer, started, Instant::now());
        match (failure, answer) {
            (Some(failure), _) => Err(failure),
            // The library does not repeat what failed for unknown reasons.
            (None, Err(error)) if self.is_reached && self.health.is_gone() => {
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
            (None, answer) => answer,
        }
    }
}

impl ConditionalService {
    /// Completes an upload if there is no such object. The header need not be signed.
    async fn complete_new(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut conditional = request.clone();
        conditional.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        let answer = self.client.execute(conditional).await?;
        // Some stores refuse headers that they do not know.
        if answer.status().as_u16() == NOT_IMPLEMENTED {
            request.headers_mut().remove(IF_NONE_MATCH);
            return self.client.execute(request).await;
        }
        Ok(answer)
    }
}

const IF_NONE_MATCH: &str = "if-none-match";
const CONFLICT: u16 = 409;
const NOT_IMPLEMENTED: u16 = 501;

fn completes_upload(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method().as_str() == "POST" && query.starts_with("uploadId=")
}

/// The condition of an upload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PutCondition {
    IsNew,
    IsUnchanged,
}

impl PutCondition {
    fn of(request: &HttpRequest) -> Option<Self> {
        let has = |name| request.headers().contains_key(name);
        match request.method().as_str() {
            "PUT" if has(IF_NONE_MATCH) => Some(Self::IsNew),
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
            // Parts have to be uploaded again, too, so that it should not repeat the request.
            CONFLICT if self == Self::IsNew => {
                Some(HttpError::new(HttpErrorKind::Unknown, ConflictingRequests))
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

/// The store advises to upload again.
#[derive(Debug)]
pub(crate) struct ConflictingRequests;

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
        let (mut health, begin) = (StoreHealth::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let gone_at = |health: &StoreHealth, seconds| health.answers().is_gone(at(seconds));
        health.note(false, at(0), at(1));
        assert!(!health.is_reached() && !gone_at(&health, 59) && gone_at(&health, 60));
        health.note(true, at(1), at(2));
        assert!(health.is_reached() && !health.is_silent());
        // Nothing was asked for an hour.
        assert!(!gone_at(&health, 4000));
        health.note(false, at(4000), at(4001));
        health.note(false, at(4002), at(4059));
        assert!(health.is_silent() && !gone_at(&health, 4059) && gone_at(&health, 4060));
        health.note(true, at(4061), at(4062));
        assert!(!gone_at(&health, 5000));
        // An attempt that began before others were answered.
        health = StoreHealth::default();
        health.note(true, at(30), at(31));
        health.note(false, at(0), at(60));
        assert!(!gone_at(&health, 90) && gone_at(&health, 91));
    }

    #[test]
    fn requests_go_on_if_a_store_that_was_gone_answers_again() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (health, now) = (StoreHealth::default(), Instant::now());
        let long_ago = now.checked_sub(RETRY_TIMEOUT).unwrap();
        runtime.block_on(async {
            health.note(false, long_ago, now);
            let answers = async {
                tokio::time::sleep(GONE_TIMEOUT / 2).await;
                health.note(true, now, now);
                tokio::time::sleep(10 * GONE_TIMEOUT).await;
            };
            tokio::select! {
                () = health.wait_until_gone() => panic!("it has answered"),
                () = answers => {}
            }
            health.note(false, long_ago, now);
            // The last answer counts.
            assert!(!health.is_gone());
            *health.answers() = Answers { last: None, silent_since: Some(long_ago) };
            health.wait_until_gone().await;
        });
    }
}
