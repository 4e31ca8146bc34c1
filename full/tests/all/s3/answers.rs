//! Answers that no S3 store should give: none of them may pass for data, or for the end of it.

use std::fs;

use s3s::{Body, HttpResponse};

use super::server::{AlteredAnswers, PlannedFault};
use super::with_logs;

#[test]
fn listings_that_are_cut_off_are_not_taken_for_whole() {
    const CUT_OFF: &str = "<ListBucketResult><Name>logs</Name><Prefix>drives/</Prefix>\
        <MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>\
        <Contents><Key>drives/a.lcm</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
        <Size>7</Size></Contents></ListBucketResult>";
    const REPEATED: &str = "<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>x</NextContinuationToken><Contents><Key>drives/a.lcm</Key>\
        <LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size></Contents>\
        </ListBucketResult>";
    const PORTAL: &str = "<!DOCTYPE html><html><body>Please log in<br></body></html>";
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]).expect(0);
    for (page, what) in [
        (CUT_OFF, "IsTruncated without NextContinuationToken"),
        (REPEATED, "repeats a page of a listing"),
        (PORTAL, "expected <ListBucketResult>, found <html>"),
        ("<Error><Code>AccessDenied</Code></Error>", "found <Error>"),
    ] {
        for (bucket, arguments) in [
            ("logs", ["convert", "s3://logs/drives/*.lcm", "--to", "all.lcm"]),
            ("out", ["convert", "s3://out/t/*.parquet", "--to", "all.lcm"]),
            ("out", ["convert", "--to", "s3://out/t/", "in/b.lcm"]),
        ] {
            server.on(&format!("GET /{bucket}?"), 1, PlannedFault::Say(page));
            let ran = server.ran(&folder, &arguments).expect(1).expect_stderr(what);
            let named = ran.expect_stderr("AWS_ENDPOINT_URL").expect_stderr("s3://");
            assert_eq!(named.stderr.lines().count(), 1, "{}", named.stderr);
        }
    }
    assert!(!folder.at("all.lcm").exists());
    assert!(fs::exists(server.path("out/t/_manifest.json")).unwrap());
}

#[test]
fn folders_are_found_without_version_2_of_listings() {
    const FIRST: &str = "<ListBucketResult><MaxKeys>1</MaxKeys><IsTruncated>true</IsTruncated>\
        <NextMarker>t/_manifest.json</NextMarker><Contents><Key>t/_manifest.json</Key>\
        <LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size></Contents>\
        </ListBucketResult>";
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]).expect(0);
    server.requests();
    server.on("max-keys=1", 1, PlannedFault::Say(FIRST));
    server.ran(&folder, &["verify", "s3://out/t/"]).expect(0);
    server.ran(&folder, &["convert", "s3://out/t/", "--to", "back.lcm"]).expect(0);
    assert!(server.requests().iter().any(|line| line.contains("max-keys=1")));
    assert!(folder.read("back.lcm") == folder.read("in/a.lcm"));
}

#[test]
fn ranges_that_are_too_short_are_read_again() {
    let (folder, server) = with_logs();
    let shorten = |answer: &mut HttpResponse| {
        answer.headers_mut().remove("content-length");
        *answer.body_mut() = Body::from("short".to_owned());
    };
    let alter = |times| {
        let answers = AlteredAnswers { text: "GET /logs/drives/a.lcm", times, how: shorten };
        *server.state.altered.lock().unwrap() = Some(answers);
    };
    let copy = ["convert", "s3://logs/drives/a.lcm", "--to", "copy.lcm"];
    alter(2);
    server.ran(&folder, &copy).expect(0);
    assert!(folder.read("copy.lcm") == folder.read("in/a.lcm"));
    fs::remove_file(folder.at("copy.lcm")).unwrap();
    alter(u64::MAX);
    let ran = server.ran(&folder, &copy).expect(1).expect_stderr("AWS_ENDPOINT_URL");
    ran.expect_stderr("has sent 5 bytes in place of ").expect_stderr("s3://logs/drives/a.lcm");
    assert!(!folder.at("copy.lcm").exists());
}

#[test]
fn etags_with_some_answers_only_are_not_taken_for_a_change() {
    let (folder, server) = with_logs();
    for text in ["GET /logs/drives/a.lcm", "HEAD /logs/drives/a.lcm"] {
        let how = |answer: &mut HttpResponse| drop(answer.headers_mut().remove("etag"));
        *server.state.altered.lock().unwrap() = Some(AlteredAnswers { text, times: u64::MAX, how });
        let copy = ["convert", "s3://logs/drives/a.lcm", "--to", "copy.lcm"];
        let ran = server.ran(&folder, &copy).expect(1).expect_stderr("ETag");
        let ran = ran.expect_stderr("AWS_ENDPOINT_URL").expect_stderr("s3://logs/drives/a.lcm");
        assert!(!ran.stderr.contains("has changed"), "{}", ran.stderr);
    }
}
