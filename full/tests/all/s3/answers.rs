//! Answers that no S3 store should give: none of them may pass for data, or for the end of it.

use std::fs;

use super::with_logs;
use crate::s3::server::PlannedFault;

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
