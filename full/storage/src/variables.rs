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

/// The environment variables that are settings of clients, with the name of each.
struct Settings(Vec<(AmazonS3ConfigKey, String, String)>);

impl Settings {
    fn new(variables: impl Iterator<Item = (String, String)>) -> Self {
        let settings =
            variables.filter_map(|(name, value)| Some((config_key(&name, &value)?, name, value)));
        Self(settings.collect())
    }

    /// The name and the value of a setting. The last one counts, as for the library.
    fn get(&self, key: AmazonS3ConfigKey) -> Option<(&str, &str)> {
        let found = self.0.iter().rfind(|(other, ..)| *other == key);
        found.map(|(_, name, value)| (&**name, &**value))
    }

    fn has(&self, key: AmazonS3ConfigKey) -> bool {
        self.get(key).is_some()
    }

    /// The name of a setting that is turned on, in one of the words that the library knows.
    fn turned_on(&self, key: AmazonS3ConfigKey) -> Option<&str> {
        let (name, value) = self.get(key)?;
        let words = ["1", "true", "on", "yes", "y"];
        words.iter().any(|word| value.eq_ignore_ascii_case(word)).then_some(name)
    }

    fn has_endpoint(&self) -> bool {
        self.has(AmazonS3ConfigKey::Endpoint) || self.has(AmazonS3ConfigKey::S3Endpoint)
    }

    /// Whether the region is a part of the name of a server: of the store, of the one that gives
    /// out credentials, or of the one that gives out sessions of S3 Express.
    fn asks_in_region(&self) -> bool {
        use AmazonS3ConfigKey as Key;
        let has_keys = self.has(Key::AccessKeyId) || self.has(Key::SecretAccessKey);
        let has_role = self.has(Key::WebIdentityTokenFile) && self.has(Key::RoleArn);
        !self.has_endpoint()
            || has_role && !has_keys && !self.has(Key::StsEndpoint)
            || self.turned_on(Key::S3Express).is_some()
    }

    /// The setting that makes the bucket a part of the name of a server.
    fn bucket_in_host(&self) -> Option<&str> {
        let style = self.turned_on(AmazonS3ConfigKey::VirtualHostedStyleRequest);
        // An endpoint of this style names the bucket itself.
        let style = style.filter(|_| !self.has_endpoint());
        style.or_else(|| self.turned_on(AmazonS3ConfigKey::S3Express))
    }
}

/// Refuses settings that no request can be made with.
pub(crate) fn check_variables(variables: impl Iterator<Item = (String, String)>) -> io::Result<()> {
    use AmazonS3ConfigKey as Key;
    let settings = Settings::new(variables);
    for (key, name, value) in &settings.0 {
        check_variable(key, value)
            .map_err(|what| io::Error::other(format!("the environment variable {name} {what}")))?;
    }
    let region = settings.get(Key::Region).or_else(|| settings.get(Key::DefaultRegion));
    if let Some((name, region)) = region
        && settings.asks_in_region()
        && !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return Err(io::Error::other(format!(
            "the environment variable {name} is no region of Amazon: expected a name such as \
             eu-central-1, found \"{region}\""
        )));
    }
    let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    let has = [Key::AccessKeyId, Key::SecretAccessKey].map(|key| settings.has(key));
    let (set, missing) = match has.into() {
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

/// Refuses a bucket whose name cannot be a part of the address of a server, where these variables
/// put it.
pub(crate) fn check_bucket(
    bucket: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> io::Result<()> {
    // A colon follows the tenant that a bucket of Ceph belongs to.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if !bucket.chars().all(is_allowed) || !bucket.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Err(io::Error::other(format!(
            "no bucket has the name `{bucket}`: names have letters, digits, `-`, `.` and `_`"
        )));
    }
    match Settings::new(variables).bucket_in_host() {
        Some(name) if !is_address(&format!("https://{bucket}.amazonaws.com")) => {
            Err(io::Error::other(format!(
                "the name of the bucket `{bucket}` cannot be a part of the name of a server, \
                 which the environment variable {name} demands; unset it, or check the name"
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    }

    fn checked(variables: &[(&str, &str)]) -> io::Result<()> {
        check_variables(owned(variables))
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
    fn the_region_that_counts_is_checked_in_any_order() {
        let (good, wrong) = (("AWS_REGION", "eu-central-1"), ("AWS_DEFAULT_REGION", "eu central"));
        checked(&[good, wrong]).unwrap();
        checked(&[wrong, good]).unwrap();
        let (good, wrong) = (("AWS_DEFAULT_REGION", "eu-central-1"), ("AWS_REGION", "eu central"));
        for variables in [[good, wrong], [wrong, good]] {
            let said = refusal(&variables);
            assert!(said.starts_with("the environment variable AWS_REGION "), "{said}");
        }
        assert!(refusal(&[("AWS_DEFAULT_REGION", "x y")]).contains("AWS_DEFAULT_REGION"));
    }

    #[test]
    fn the_region_is_checked_with_an_endpoint_if_another_server_has_it_in_its_name() {
        let (at, region) = (("AWS_ENDPOINT_URL", "http://host:9000"), ("AWS_REGION", "x y"));
        let token = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
        let role = ("AWS_ROLE_ARN", "arn:aws:iam::1:role/a");
        for set in [&[token, role][..], &[("AWS_S3_EXPRESS", "Yes")]] {
            let said = refusal(&[&[at, region], set].concat());
            assert!(said.starts_with("the environment variable AWS_REGION "), "{said}");
        }
        let sts = ("AWS_ENDPOINT_URL_STS", "https://sts.host");
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        for set in [&[token][..], &[role], &[token, role, sts], &[token, role, keys[0], keys[1]]] {
            checked(&[&[at, region], set].concat()).unwrap();
        }
        checked(&[at, region, ("AWS_S3_EXPRESS", "off")]).unwrap();
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
        for name in ["logs", "my.logs-2_A", "tenant:logs", ":a", "xn--a"] {
            check_bucket(name, std::iter::empty()).unwrap();
        }
        for name in ["my bucket", "a?b", "a#b", "a%b", "..", ".", "é", "a@b"] {
            let said = check_bucket(name, std::iter::empty()).unwrap_err().to_string();
            assert!(said.contains(&format!("`{name}`")), "{said}");
        }
    }

    #[test]
    fn names_of_buckets_in_the_name_of_a_server_are_parts_of_it() {
        let checked = |bucket: &str, variables: &[(&str, &str)]| {
            check_bucket(bucket, owned(variables)).map_err(|error| error.to_string())
        };
        let in_host = ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "TRUE");
        let express = ("AWS_S3_EXPRESS", "1");
        let at = ("AWS_ENDPOINT_URL_S3", "http://bucket.host");
        for bucket in ["logs", "my.logs-2_A", "logs--usw2-az1--x-s3", "1.2.3.4", "-a", "a..b"] {
            for variables in [&[in_host][..], &[express], &[express, at]] {
                checked(bucket, variables).unwrap();
            }
        }
        for bucket in ["tenant:b", ":a", "a:", "xn--a", "a.xn--b", "tenant:80"] {
            for (variables, name) in [
                (&[in_host][..], "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
                (&[express], "AWS_S3_EXPRESS"),
                (&[at, express], "AWS_S3_EXPRESS"),
            ] {
                let said = checked(bucket, variables).unwrap_err();
                assert!(said.contains(&format!("`{bucket}`")) && said.contains(name), "{said}");
            }
            checked(bucket, &[in_host, at]).unwrap();
            checked(bucket, &[("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "no")]).unwrap();
        }
    }
}
