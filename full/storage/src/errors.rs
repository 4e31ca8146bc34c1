//! Error messages for failed requests: what went wrong, and what to do, in one sentence. They never
//! quote long server responses or credentials.

use std::error::Error as _;
use std::io;
use std::ops::Range;

use object_store::Error;
use sluice_io::store::changed_error;

use crate::listing::ListingFault;

/// The metadata server of cloud machines: an error that names it means that no credentials are set.
const METADATA_SERVER: &str = "169.254.169.254";

/// The error of a client that cannot be created from these variables. Names the one whose value the
/// error quotes.
pub(crate) fn settings_error(
    error: &Error,
    variables: impl Iterator<Item = (String, String)>,
) -> io::Error {
    let what = root_cause(error);
    let mut variables = variables.filter(|(name, _)| name.starts_with("AWS_"));
    let wrong = variables.find(|(_, value)| what.contains(&format!("\"{value}\"")));
    let names =
        wrong.map_or_else(|| "variables AWS_…".to_owned(), |(name, _)| format!("variable {name}"));
    io::Error::other(format!("cannot create a client from the environment {names}: {what}"))
}

/// The error of a range of an object whose bytes are not as many as the store has said.
pub(crate) fn wrong_length_error(found: usize, range: &Range<u64>) -> io::Error {
    io::Error::other(format!(
        "the store {} has sent {found} bytes in place of the {} from byte {} on, each time it was \
         asked; try again, and check what is between, such as a proxy",
        endpoint(),
        range.end - range.start,
        range.start,
    ))
}

/// The error of an object of which the store sends ETags with some answers only.
pub(crate) fn etag_error() -> io::Error {
    io::Error::other(format!(
        "the store {} sends the ETag with some answers only, so that a change of it while it is \
         read could not be noticed; check what is between, such as a proxy, or read a copy",
        endpoint(),
    ))
}

/// The error of a failed request.
pub(crate) fn request_error(error: &Error) -> io::Error {
    let (kind, what) = classify(error);
    io::Error::new(kind, what)
}

fn classify(error: &Error) -> (io::ErrorKind, String) {
    use io::ErrorKind::{AlreadyExists, NotFound, Other, PermissionDenied};
    let text = full_text(error);
    let server = endpoint();
    if let Some(fault) = causes(error).find_map(|cause| cause.downcast_ref::<ListingFault>()) {
        return (Other, format!("the store {server} {fault}"));
    }
    if text.contains("NoSuchBucket") {
        return (NotFound, format!("there is no such bucket {server}; its name follows s3://"));
    }
    match error {
        Error::NotFound { .. } => (NotFound, "there is no such object".to_owned()),
        Error::AlreadyExists { .. } => (AlreadyExists, "the object already exists".to_owned()),
        Error::InvalidPath { .. } => (
            Other,
            format!(
                "an object has a key that is not a path: {}; remove or rename it, or select others",
                root_cause(error)
            ),
        ),
        Error::Precondition { .. } => (Other, changed_error().to_string()),
        _ if text.contains(METADATA_SERVER) => (
            PermissionDenied,
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_SKIP_SIGNATURE=true for a bucket that everybody may read"
                .to_owned(),
        ),
        _ if ["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"]
            .iter()
            .any(|code| text.contains(code)) =>
        {
            (
                PermissionDenied,
                format!(
                    "the store {server} rejects the credentials; check AWS_ACCESS_KEY_ID, \
                     AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION"
                ),
            )
        }
        _ if is_denied(error, &text) => (
            PermissionDenied,
            format!(
                "the store {server} denies access with the credentials in AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY; check them, and the permissions of their user"
            ),
        ),
        _ if text.contains("scheme is not allowed") => {
            (Other, "the endpoint is http://…, which requires AWS_ALLOW_HTTP=true".to_owned())
        }
        _ if text.contains("LOCATION") || text.contains("PermanentRedirect") => {
            (Other, "the bucket is in another region; set AWS_REGION".to_owned())
        }
        // Answers to HEAD have no body that would say so.
        _ if text.contains("status code: 400") && is_set("AWS_SESSION_TOKEN") => (
            Other,
            format!(
                "the store {server} takes the request for invalid (status 400); \
                 AWS_SESSION_TOKEN may be wrong or expired: set it again, or unset it if the \
                 credentials are not temporary"
            ),
        ),
        _ => {
            (Other, format!("the store {server} cannot be reached or fails: {}", root_cause(error)))
        }
    }
}

/// Whether access was denied. The library does not classify failures of listings.
fn is_denied(error: &Error, text: &str) -> bool {
    matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
        || ["status code: 401", "status code: 403"].iter().any(|code| text.contains(code))
}

/// Where requests go, as the user configured it, without credentials.
fn endpoint() -> String {
    let set = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoint = set.iter().find_map(|name| std::env::var(name).ok());
    match endpoint {
        Some(url) => format!("at {} (AWS_ENDPOINT_URL)", shown_address(&url)),
        None => {
            let set = ["AWS_REGION", "AWS_DEFAULT_REGION"];
            let region = set.iter().find_map(|name| std::env::var(name).ok());
            format!("in region {} (AWS_REGION)", region.as_deref().unwrap_or("us-east-1"))
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// The address of a server as far as it holds no secrets: without a login and a query.
pub(crate) fn shown_address(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (address, query) = match rest.split_once(['?', '#']) {
        None => (rest, ""),
        // It may be a part of the login.
        Some((_, query)) if query.contains('@') => ("", "…"),
        Some((address, _)) => (address, "?…"),
    };
    let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
    let slashes = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{slashes}{address}{query}").chars().filter(|c| !c.is_control()).collect()
}

/// The text of an error and all its sources. Only to search in: it may hold secrets.
fn full_text(error: &Error) -> String {
    let texts = causes(error).map(ToString::to_string);
    std::iter::once(error.to_string()).chain(texts).collect::<Vec<_>>().join(" ")
}

/// The sources of an error, outermost first.
pub(crate) fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |source| (*source).source())
}

/// The innermost source of an error, shortened, and without signed URLs.
fn root_cause(error: &Error) -> String {
    const MOST: usize = 200;
    let text = causes(error).last().map_or_else(|| error.to_string(), ToString::to_string);
    let line = text.lines().next().unwrap_or_default();
    let plain = line.split_whitespace().filter(|word| !word.contains("X-Amz-"));
    let text = plain.collect::<Vec<_>>().join(" ");
    text.trim_end_matches(':').chars().filter(|c| !c.is_control()).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_for(text: &str) -> String {
        let error = Error::Generic { store: "S3", source: text.to_owned().into() };
        request_error(&error).to_string()
    }

    #[test]
    fn errors_say_what_to_do() {
        for (cause, message) in [
            ("error sending request for url (http://169.254.169.254/latest)", "AWS_ACCESS_KEY_ID"),
            ("<Code>SignatureDoesNotMatch</Code>", "AWS_SECRET_ACCESS_KEY"),
            ("<Code>NoSuchBucket</Code>", "no such bucket"),
            ("Server returned non-2xx status code: 403 Forbidden: <?xml", "denies access"),
            ("URL scheme is not allowed", "AWS_ALLOW_HTTP"),
            ("connection refused", "connection refused"),
        ] {
            assert!(message_for(cause).contains(message), "{}", message_for(cause));
        }
    }

    #[test]
    fn signed_urls_and_long_responses_are_not_shown() {
        let text = format!("GET http://h/b?X-Amz-Signature=1234 {}\nmore", "x".repeat(5000));
        let message = message_for(&text);
        assert!(
            !message.contains("1234") && !message.contains("more") && message.len() < 500,
            "{message}"
        );
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, shown) in [
            ("http://me:secret@host:9000", "http://host:9000"),
            ("host:9000", "host:9000"),
            ("http://me:se/cr@et@host:9000/", "http://host:9000/"),
            ("http://host/?token=secret", "http://host/?…"),
            ("http://host/#secret", "http://host/?…"),
            ("http://host/?token=a@secret", "http://…"),
            ("http://me:se?cret@host", "http://…"),
            ("http://host\r", "http://host"),
        ] {
            assert_eq!(shown_address(url), shown);
        }
    }
}
