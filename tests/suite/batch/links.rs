//! Outputs of different inputs that are links to one file.

use std::fs;
use std::os::unix::fs::symlink;

use crate::kit::run_sluice;

#[test]
fn outputs_that_are_links_to_one_file_are_refused() {
    let folder = super::folder();
    let convert =
        |out: &str| run_sluice(&folder, &["convert", "in/[01].lcm", "--to", out, "--overwrite"]);
    for (root, out, one, other) in [
        ("files", "files/{stem}.jsonl", "files/0.jsonl", "files/1.jsonl"),
        ("folders", "folders/{stem}/", "folders/0", "folders/1"),
    ] {
        convert(out).expect(0);
        match folder.at(other).is_dir() {
            true => fs::remove_dir_all(folder.at(other)).unwrap(),
            false => fs::remove_file(folder.at(other)).unwrap(),
        }
        symlink(folder.at(one), folder.at(other)).unwrap();
        let before = super::tree(&folder.at(root));
        convert(out).expect(1).expect_stderr("to the same place: remove the links");
        super::assert_same_files(&before, &super::tree(&folder.at(root)));
    }
}

#[test]
fn an_output_that_is_a_link_to_one_that_is_not_there_yet_is_refused() {
    let folder = super::folder();
    for (made, link, target) in
        [("rising", "1.jsonl", "0.jsonl"), ("falling", "0.jsonl", "1.jsonl")]
    {
        fs::create_dir(folder.at(made)).unwrap();
        symlink(target, folder.at(made).join(link)).unwrap();
        let to = format!("{made}/{{stem}}.jsonl");
        run_sluice(&folder, &["convert", "in/[01].lcm", "--to", &to, "--overwrite"])
            .expect(1)
            .expect_stderr("to the same place: remove the links");
        assert_eq!(fs::read_dir(folder.at(made)).unwrap().count(), 1);
    }
}
