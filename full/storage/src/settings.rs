//! The client of a bucket, configured by the environment variables that other S3 programs use too.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::errors;

/// The timeout of a request; parts of uploads have 8 MiB, and connections may be slow.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Transient failures are retried this often, within the time below.
const RETRIES: usize = 5;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// The client of a bucket, created once per process.
pub(crate) fn client(bucket: &str) -> io::Result<Arc<AmazonS3>> {
    static CLIENTS: LazyLock<Mutex<BTreeMap<String, Arc<AmazonS3>>>> =
        LazyLock::new(Mutex::default);
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.get(bucket) {
        return Ok(Arc::clone(client));
    }
    let builder = builder(variables());
    if let Some(url) = builder.get_config_value(&AmazonS3ConfigKey::Endpoint) {
        errors::check_endpoint(&url)?;
    }
    let built = builder.with_bucket_name(bucket).build();
    let client = Arc::new(built.map_err(|error| errors::settings_error(&error, variables()))?);
    clients.insert(bucket.to_owned(), Arc::clone(&client));
    Ok(client)
}

/// The environment variables that are UTF-8.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Configures a client by these variables, with timeouts and retries by default. Empty ones are as
/// good as not set.
fn builder(variables: impl Iterator<Item = (String, String)>) -> AmazonS3Builder {
    let client = ClientOptions::new().with_timeout(TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_TIMEOUT,
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
    };
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
    for (name, value) in variables {
        let key = name.starts_with("AWS_").then(|| name.to_ascii_lowercase().parse());
        // The address names the bucket. Unknown variables are for other programs.
        if let Some(Ok(key)) = key
            && key != AmazonS3ConfigKey::Bucket
            && !value.is_empty()
        {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(variables: &[(&str, &str)]) -> AmazonS3Builder {
        builder(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
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
        let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let error = errors::settings_error(&error, owned.into_iter()).to_string();
        assert!(error.contains("AWS_ALLOW_HTTP") && error.contains("perhaps"), "{error}");
        for wrong in ["rubbish", "localhost:9000", "ftp://host", "http://"] {
            let error = errors::check_endpoint(wrong).unwrap_err().to_string();
            assert!(error.contains("AWS_ENDPOINT_URL"), "{error}");
        }
        errors::check_endpoint("HTTP://localhost:9000").unwrap();
    }
}
