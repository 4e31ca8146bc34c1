//! Environment variables and names of buckets that no request can be made with.

use super::with_logs;
use crate::kit::ProgramOutput;

/// The variables of the tests' server with these instead; an empty one is as good as not set.
const WRONG: [(&str, &str, &str); 9] = [
    ("AWS_REGION", "us-east-1\r", "AWS_REGION ends with a line ending"),
    ("AWS_ACCESS_KEY_ID", "HIDDEN\r", "AWS_ACCESS_KEY_ID ends with a line ending"),
    ("AWS_SECRET_ACCESS_KEY", "HIDDEN\n", "AWS_SECRET_ACCESS_KEY ends with a line ending"),
    ("AWS_SESSION_TOKEN", "HIDDEN\n", "AWS_SESSION_TOKEN ends with a line ending"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000\r", "AWS_ENDPOINT_URL ends with a line ending"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:99999", "AWS_ENDPOINT_URL is no address"),
    ("AWS_ENDPOINT_URL_S3", "http://me:HID/DEN@host", "AWS_ENDPOINT_URL_S3 is no address"),
    ("AWS_ACCESS_KEY_ID", "", "AWS_ACCESS_KEY_ID is not set, but AWS_SECRET_ACCESS_KEY is"),
    ("AWS_SECRET_ACCESS_KEY", "", "AWS_SECRET_ACCESS_KEY is not set, but AWS_ACCESS_KEY_ID is"),
];

#[test]
fn variables_that_cannot_be_used_are_named_without_their_value() {
    let (folder, server) = with_logs();
    for (name, value, what) in WRONG {
        let mut command = server.sluice(&folder);
        command.env(name, value).args(["info", "s3://logs/drives/a.lcm"]);
        let ran = ProgramOutput::from_output(command.output().unwrap()).expect(1);
        let said = ran.expect_stderr(what).expect_stderr("s3://logs/drives/a.lcm").stderr;
        assert!(!said.contains("HID") && said.lines().count() == 1, "{said}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_name_that_no_bucket_has_is_refused() {
    let (folder, server) = with_logs();
    for (log, bucket) in [("s3://my bucket/x.lcm", "my bucket"), ("s3://a?b/x.lcm", "a?b")] {
        let ran = server.ran(&folder, &["convert", log, "--to", "x.lcm"]).expect(1);
        let said = ran.expect_stderr(&format!("no bucket has the name `{bucket}`")).stderr;
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_wrong_session_token_is_named_as_a_possible_cause() {
    let (folder, server) = with_logs();
    let says = |token: &str| {
        let refuse = crate::s3::server::PlannedFault::Reject;
        server.on("HEAD /logs/drives/a.lcm", 1, refuse);
        let mut command = server.sluice(&folder);
        command.env("AWS_SESSION_TOKEN", token).args(["info", "s3://logs/drives/a.lcm"]);
        ProgramOutput::from_output(command.output().unwrap()).expect(1).stderr
    };
    let said = says("HIDDEN");
    assert!(said.contains("AWS_SESSION_TOKEN") && !said.contains("HIDDEN"), "{said}");
    assert!(!says("").contains("AWS_SESSION_TOKEN"));
}
