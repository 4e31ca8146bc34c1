//! Checks the environment variables and bucket names that the library would panic on. Messages name
//! a variable, and never quote keys.

use std::io;

use http::Uri;
use object_store::aws::AmazonS3ConfigKey;
use url::Url;

use crate::errors::shown_address;

/// The setting of an environment variable, if it is one of clients. Empty variables are as good as
/// not set.
pub(crate) fn config_key(name: &str, value: &str) -> Option<AmazonS3ConfigKey> {
    if !name.starts_with("AWS_") || value.is_empty() {
        return None;
    }
    // Unknown variables are for other programs.
    let key = name.to_ascii_lowercase().parse().ok();
    // The address names the bucket.
    key.filter(|key| *key != AmazonS3ConfigKey::Bucket)
}

/// Refuses settings that no request can be made with.
pub(crate) fn check_variables(variables: impl Iterator<Item = (String, String)>) -> io::Result<()> {
    use AmazonS3ConfigKey as Key;
    let set = variables.filter_map(|(name, value)| Some((config_key(&name, &value)?, name, value)));
    let set: Vec<(Key, String, String)> = set.collect();
    for (key, name, value) in &set {
        check_variable(key, value)
            .map_err(|what| io::Error::other(format!("the environment variable {name} {what}")))?;
    }
    let has = |key| set.iter().any(|(other, ..)| *other == key);
    let region = set.iter().find(|(key, ..)| matches!(key, Key::Region | Key::DefaultRegion));
    if let Some((_, name, region)) = region
        && !has(Key::Endpoint)
        && !has(Key::S3Endpoint)
        && !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return Err(io::Error::other(format!(
            "the environment variable {name} is no region of Amazon: expected a name such as \
             eu-central-1, found \"{region}\""
        )));
    }
    let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    let (set, missing) = match (has(Key::AccessKeyId), has(Key::SecretAccessKey)) {
        (true, false) => (id, secret),
        (false, true) => (secret, id),
        (true, true) | (false, false) => return Ok(()),
    };
    Err(io::Error::other(format!(
        "the environment variable {missing} is not set, but {set} is: set both"
    )))
}

/// What is wrong with the value of a setting.
fn check_variable(key: &AmazonS3ConfigKey, value: &str) -> Result<(), String> {
    use AmazonS3ConfigKey as Key;
    if value.ends_with(['\r', '\n']) {
        return Err("ends with a line ending (CR or LF); set it again without".to_owned());
    }
    if value.contains(char::is_control) {
        return Err("contains a control character; set it again without".to_owned());
    }
    match key {
        Key::AccessKeyId | Key::Token | Key::Region | Key::DefaultRegion if !value.is_ascii() => {
            Err("contains a character that is not ASCII; set it again without".to_owned())
        }
        Key::Endpoint | Key::S3Endpoint | Key::StsEndpoint if value.contains(['?', '#']) => {
            Err(not_address(value, ", without `?` and `#`"))
        }
        Key::Endpoint
        | Key::S3Endpoint
        | Key::StsEndpoint
        | Key::MetadataEndpoint
        | Key::ContainerCredentialsFullUri
            if !is_address(value) =>
        {
            Err(not_address(value, ""))
        }
        Key::ContainerCredentialsRelativeUri
            if !value.starts_with('/') || !is_address(&format!("http://host{value}")) =>
        {
            Err("is no path of a server; expected one such as /credentials".to_owned())
        }
        _ => Ok(()),
    }
}

fn not_address(url: &str, more: &str) -> String {
    format!(
        "is no address of a server: expected http://HOST or https://HOST{more}, found {}",
        shown_address(url)
    )
}

/// Whether requests can be sent to the address of a server.
fn is_address(url: &str) -> bool {
    let is_http = Url::parse(url).is_ok_and(|url| ["http", "https"].contains(&url.scheme()));
    // Else it could be a path for the one, and a host for the other.
    let has_host = url.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/'));
    is_http && has_host && url.parse::<Uri>().is_ok()
}

/// Refuses a bucket whose name cannot be a part of an address of a server.
pub(crate) fn check_bucket(bucket: &str) -> io::Result<()> {
    // A colon follows the tenant that a bucket of Ceph belongs to.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if bucket.chars().all(is_allowed) && bucket.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "no bucket has the name `{bucket}`: names have letters, digits, `-`, `.` and `_`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> io::Result<()> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        check_variables(variables.iter().map(owned))
    }

    #[track_caller]
    fn refusal(variables: &[(&str, &str)]) -> String {
        checked(variables).unwrap_err().to_string()
    }

    #[test]
    fn usual_settings_pass() {
        let keys = ("AWS_ACCESS_KEY_ID", "AKIA1");
        let secret = ("AWS_SECRET_ACCESS_KEY", "a+b/c=é ");
        let at = |url| ("AWS_ENDPOINT_URL", url);
        for variables in [
            &[][..],
            &[keys, secret, ("AWS_REGION", "eu-central-1"), ("AWS_SESSION_TOKEN", "a/+=")],
            &[at("HTTP://localhost:9000"), ("AWS_REGION", "my region")],
            &[at("https://me:pass@[::1]:9000/s3/")],
            &[at(""), ("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")],
            &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/a?b=c")],
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1?b=c")],
            &[("AWS_PROFILE", "a\nb"), ("AWS_BUCKET", "a b"), ("OTHER", "\r")],
        ] {
            checked(variables).unwrap();
        }
    }

    #[test]
    fn line_endings_and_other_odd_characters_are_refused() {
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ALLOW_HTTP",
        ] {
            for (value, what) in
                [("hidden\r", "line ending"), ("hidden\n", "line ending"), ("hid\tden", "control")]
            {
                let said = refusal(&[(name, value)]);
                assert!(said.starts_with(&format!("the environment variable {name} ")), "{said}");
                assert!(said.contains(what) && !said.contains("hid"), "{said}");
            }
        }
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION"] {
            let said = refusal(&[(name, "hiddén")]);
            assert!(said.contains(name) && said.contains("ASCII"), "{said}");
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused() {
        for (wrong, shown) in [
            ("rubbish", "rubbish"),
            ("localhost:9000", "localhost:9000"),
            ("ftp://host", "ftp://host"),
            ("http://", "http://"),
            ("http:///host", "http:///host"),
            ("http://127.0.0.1:99999", "http://127.0.0.1:99999"),
            ("http://127.0.0.1:59x", "http://127.0.0.1:59x"),
            ("http://bad host:9000", "http://bad host:9000"),
            ("http://host/a b", "http://host/a b"),
            ("http://[::1", "http://[::1"),
            ("http://me:pa/ss@127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://host/?token=secret", "http://host/?…"),
        ] {
            for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"] {
                let said = refusal(&[(name, wrong)]);
                assert!(said.starts_with(&format!("the environment variable {name} ")), "{said}");
                assert!(said.ends_with(&format!(", found {shown}")), "{said}");
            }
        }
        assert!(refusal(&[("AWS_METADATA_ENDPOINT", "x y")]).contains("AWS_METADATA_ENDPOINT"));
        assert!(refusal(&[("AWS_REGION", "eu central")]).contains("AWS_REGION"));
    }

    #[test]
    fn a_key_without_the_other_names_the_one_that_is_missing() {
        let id = refusal(&[("AWS_SECRET_ACCESS_KEY", "hidden"), ("AWS_ACCESS_KEY_ID", "")]);
        assert!(id.contains("AWS_ACCESS_KEY_ID is not set") && !id.contains("hidden"), "{id}");
        let secret = refusal(&[("AWS_ACCESS_KEY_ID", "hidden")]);
        assert!(secret.contains("AWS_SECRET_ACCESS_KEY is not set"), "{secret}");
    }

    #[test]
    fn names_of_buckets_are_parts_of_addresses() {
        for name in ["logs", "my.logs-2_A", "tenant:logs"] {
            check_bucket(name).unwrap();
        }
        for name in ["my bucket", "a?b", "a#b", "a%b", "..", ".", "é", "a@b"] {
            let said = check_bucket(name).unwrap_err().to_string();
            assert!(said.contains(&format!("`{name}`")), "{said}");
        }
    }
}
