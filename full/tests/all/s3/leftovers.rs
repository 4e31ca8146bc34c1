//! What stays in a store for credentials that may write but not delete.

use super::server::PlannedFault;
use super::with_logs;

#[test]
fn copies_of_replaced_objects_that_may_not_be_deleted_are_named() {
    let (folder, server) = with_logs();
    let to = |name: &str| {
        let from = format!("in/{name}.lcm");
        server.ran(&folder, &["convert", &from, "--to", "s3://out/s/x.lcm", "--overwrite"])
    };
    to("a").expect(0);
    assert!(!to("b").expect(0).stderr.contains("copy of a replaced object"));
    assert_eq!(server.keys("out"), ["s/x.lcm"]);
    server.on("/out?delete", 1, PlannedFault::Refuse);
    let ran = to("c").expect(0);
    let copy = server.keys("out").into_iter().find(|key| key.starts_with("s/.x.lcm.")).unwrap();
    let says = format!("s3://out/{copy}: this copy of a replaced object could not be removed");
    ran.expect_stderr(&says).expect_stderr("note: ").expect_stderr("denies access");
    assert!(server.get(&format!("out/{copy}")) == folder.read("in/b.lcm"));
    assert!(server.get("out/s/x.lcm") == folder.read("in/c.lcm"));
}
