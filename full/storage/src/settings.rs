//! The client of a bucket, configured by the environment variables that other S3 programs use too.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, S3CopyIfNotExists};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::connector::{ClientKind, Connector, RETRY_TIMEOUT, StoreHealth};
use crate::errors;
use crate::variables::{check_bucket, check_variables, config_key};

/// The timeout of a request; parts of uploads have 8 MiB, and connections may be slow.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often requests are made before the store has ever answered: a wrong address should be
/// reported soon. The same if it does not answer any longer: what is left to do would fail, too.
const UNREACHED_ATTEMPTS: usize = 6;
/// How long they are retried.
const UNREACHED_RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often requests are made at most, as for other S3 programs.
const MAX_ATTEMPTS: &str = "AWS_MAX_ATTEMPTS";

/// A client of a bucket, created once per process.
pub(crate) fn client(bucket: &str, kind: ClientKind) -> io::Result<Arc<AmazonS3>> {
    /// By bucket, kind, and whether the store is reached.
    type Clients = BTreeMap<(String, ClientKind, bool), Arc<AmazonS3>>;
    static CLIENTS: LazyLock<Mutex<Clients>> = LazyLock::new(Mutex::default);
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let health = StoreHealth::of(bucket);
    let is_reached = health.is_reached();
    let which = (bucket.to_owned(), kind, is_reached);
    if let Some(client) = clients.get(&which) {
        return Ok(Arc::clone(client));
    }
    check_variables(variables())?;
    check_bucket(bucket, variables())?;
    let builder = builder(variables(), retry_config(variables(), is_reached)?);
    let builder = builder.with_http_connector(Connector { kind, health, is_reached });
    let built = builder.with_bucket_name(bucket).build();
    let client = Arc::new(built.map_err(|error| errors::settings_error(&error, variables()))?);
    clients.insert(which, Arc::clone(&client));
    Ok(client)
}

fn retry_config(
    variables: impl Iterator<Item = (String, String)>,
    is_reached: bool,
) -> io::Result<RetryConfig> {
    let (attempts, retry_timeout) = match is_reached {
        true => (usize::MAX, RETRY_TIMEOUT),
        false => (UNREACHED_ATTEMPTS, UNREACHED_RETRY_TIMEOUT),
    };
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    let max_retries = limit_attempts(variables, attempts)? - 1;
    Ok(RetryConfig { backoff, max_retries, retry_timeout })
}

/// How often a request is made, at most this often.
pub(crate) fn max_attempts(most: usize) -> io::Result<usize> {
    limit_attempts(variables(), most)
}

fn limit_attempts(
    mut variables: impl Iterator<Item = (String, String)>,
    most: usize,
) -> io::Result<usize> {
    let Some((_, value)) =
        variables.find(|(name, value)| name == MAX_ATTEMPTS && !value.is_empty())
    else {
        return Ok(most);
    };
    match value.parse::<usize>() {
        Ok(attempts) if attempts > 0 => Ok(most.min(attempts)),
        _ => Err(io::Error::other(format!(
            "the environment variable {MAX_ATTEMPTS} must be a number from 1, found \"{value}\""
        ))),
    }
}

/// The environment variables that are UTF-8.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Configures a client by these variables, with timeouts by default.
fn builder(
    variables: impl Iterator<Item = (String, String)>,
    retry: RetryConfig,
) -> AmazonS3Builder {
    let client = ClientOptions::new().with_timeout(TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
    let mut builder = AmazonS3Builder::new()
        .with_client_options(client)
        .with_retry(retry)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart);
    for (name, value) in variables {
        if let Some(key) = config_key(&name, &value) {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

#[cfg(test)]
mod tests {
    use object_store::aws::AmazonS3ConfigKey;

    use super::*;

    fn built(variables: &[(&str, &str)]) -> AmazonS3Builder {
        builder(owned(variables), RetryConfig::default())
    }

    fn owned(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    }

    #[test]
    fn requests_are_repeated_within_a_minute_or_as_often_as_set() {
        let set = |value| limit_attempts(owned(&[(MAX_ATTEMPTS, value)]), 3);
        let retries = |is_reached| retry_config(owned(&[]), is_reached).unwrap();
        assert_eq!(retries(true).retry_timeout, RETRY_TIMEOUT);
        assert_eq!(retries(false).max_retries, UNREACHED_ATTEMPTS - 1);
        assert_eq!([set("").unwrap(), set("1").unwrap(), set("4").unwrap()], [3, 1, 3]);
        for wrong in ["0", "many", "-1"] {
            let error = set(wrong).unwrap_err().to_string();
            assert!(error.contains("AWS_MAX_ATTEMPTS") && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn unknown_variables_and_the_bucket_are_ignored() {
        let builder = built(&[
            ("AWS_REGION", "eu-central-1"),
            ("AWS_PROFILE", "mine"),
            ("AWS_BUCKET", "other"),
            ("HOME", "/"),
        ]);
        assert_eq!(
            builder.get_config_value(&AmazonS3ConfigKey::Region).as_deref(),
            Some("eu-central-1")
        );
        assert_eq!(builder.get_config_value(&AmazonS3ConfigKey::Bucket), None);
    }

    #[test]
    fn empty_variables_are_ignored() {
        let variables = [("AWS_ALLOW_HTTP", ""), ("AWS_ENDPOINT_URL", "")];
        let builder = built(&variables).with_bucket_name("b");
        assert_eq!(builder.get_config_value(&AmazonS3ConfigKey::Endpoint), None);
        builder.build().unwrap();
    }

    #[test]
    fn invalid_settings_are_reported() {
        let variables = [("AWS_ALLOW_HTTP", "perhaps"), ("AWS_REGION", "x")];
        let error = built(&variables).with_bucket_name("b").build().unwrap_err();
        let error = errors::settings_error(&error, owned(&variables)).to_string();
        assert!(error.contains("AWS_ALLOW_HTTP") && error.contains("perhaps"), "{error}");
    }
}
