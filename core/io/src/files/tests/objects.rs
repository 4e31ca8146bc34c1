//! Objects of a store, and the requests that reading them takes.

use super::*;
use crate::store::memory::MEMORY;

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

fn at(bucket: &str, key: &str) -> PathBuf {
    format!("mem://{bucket}/{key}").into()
}

/// How many bytes were read, and in how many requests.
fn asked(bucket: &str) -> (u64, usize) {
    let ranges = MEMORY.with(bucket, |bucket| {
        let reads = bucket.asked.iter().filter_map(|asked| asked.strip_prefix("read "));
        reads.map(|read| read.split_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    });
    let number = |text: &str| text.parse::<u64>().unwrap();
    let len = |range: &String| {
        let (start, end) = range.split_once("..").unwrap();
        number(end) - number(start)
    };
    (ranges.iter().map(len).sum(), ranges.len())
}

#[test]
fn globs_mean_objects_and_list_only_what_begins_as_they_do() {
    for key in ["drives/b.lcm", "drives/a.lcm", "drives/x/c.lcm", "drives/a-1.txt", "other/d.lcm"] {
        MEMORY.set("globs", key, "x");
    }
    let names = |pattern: &str| -> Vec<String> {
        let found = expand(&[at("globs", pattern)]).unwrap();
        found.iter().map(|input| input.path.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("drives/*.lcm"), ["mem://globs/drives/a.lcm", "mem://globs/drives/b.lcm"]);
    assert_eq!(names("drives/**/*.lcm").len(), 3);
    assert_eq!(names("*/[de].lcm"), ["mem://globs/other/d.lcm"]);
    let listed = MEMORY.with("globs", |bucket| bucket.asked.clone());
    let lists: Vec<&String> = listed.iter().filter(|asked| asked.starts_with("list")).collect();
    assert_eq!(lists, ["list drives/", "list drives/", "list "]);
}

#[test]
fn a_glob_leaves_out_objects_with_a_leading_dot_unless_it_is_written() {
    for key in ["d/a", "d/.b", "d/.h/a", "d/.c.sluice-tmp"] {
        MEMORY.set("dots", key, "x");
    }
    let names = |pattern: &str| -> Vec<String> {
        let found = expand(&[at("dots", pattern)]).unwrap();
        found.iter().map(|input| input.path.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("d/*"), ["mem://dots/d/a"]);
    assert_eq!(names("**/a"), ["mem://dots/d/a"]);
    assert_eq!(names("d/.*"), ["mem://dots/d/.b"]);
    assert_eq!(names("d/.h/*"), ["mem://dots/d/.h/a"]);
    assert_eq!(names("d/.c.sluice-tmp"), ["mem://dots/d/.c.sluice-tmp"]);
}

#[test]
fn a_glob_that_ends_with_a_slash_matches_folders_as_on_disk() {
    let local = tempfile::tempdir().unwrap();
    let keys = [
        "runs/10/t/a",
        "runs/9/t/a",
        "runs/9/b",
        "runs/.h/t/a",
        "runs/.w.1-1.sluice-tmp/t/a",
        "runs/_manifest.json",
        "other/a",
    ];
    for key in keys {
        MEMORY.set("folder-globs", key, "x");
        let path = local.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    // Disks have no such names, and as folders they would mean `runs/` and the whole bucket.
    for key in ["runs//", "runs//t/a", "/t/a"] {
        MEMORY.set("folder-globs", key, "x");
    }
    for glob in
        ["runs/*/", "runs/**/", "*/", "runs/*/t/", "r*/9*/", "runs/[9]/", "*/*/*/", "runs/.*/"]
    {
        let names = |root: &Path| -> Vec<String> {
            let glob = PathBuf::from(format!("{}/{glob}", root.display()));
            let inputs = expand_with_folders(&glob).unwrap();
            assert!(inputs.iter().all(|input| input.bytes.is_none()));
            let paths: Vec<PathBuf> = inputs.into_iter().map(|input| input.path).collect();
            assert_eq!(folders(&glob).unwrap(), paths);
            let inside = paths.iter().map(|path| path.strip_prefix(root).unwrap());
            inside.map(|path| path.to_str().unwrap().to_owned()).collect()
        };
        let found = names(Path::new("mem://folder-globs"));
        assert_eq!(found, names(local.path()), "{glob}");
        assert!(!found.is_empty(), "{glob}");
    }
    let none = at("folder-globs", "none*/");
    assert!(folders(&none).unwrap().is_empty());
    let error = expand_with_folders(&none).unwrap_err().to_string();
    assert!(error.contains("no object matches `mem://folder-globs/none*/`"), "{error}");
}

#[test]
fn names_without_an_object_are_errors() {
    MEMORY.set("told", "folder/a.lcm", "x");
    let said = |key: &str| expand(&[at("told", key)]).unwrap_err().to_string();
    assert!(said("none.lcm").contains("no such"), "{}", said("none.lcm"));
    assert!(said("*.csv").contains("no object matches"), "{}", said("*.csv"));
    assert!(said("folder").contains("folder/*"), "{}", said("folder"));
    let bucket = expand(&["mem://to*/x".into()]).unwrap_err().to_string();
    assert!(bucket.contains("expected the name of a bucket"), "{bucket}");
}

#[test]
fn an_object_whose_name_looks_like_a_glob_is_itself() {
    MEMORY.set("odd", "a[1].lcm", "x");
    assert_eq!(expand(&[at("odd", "a[1].lcm")]).unwrap()[0].bytes, Some(1));
    assert!(!is_only_glob(&at("odd", "a[1].lcm")) && is_only_glob(&at("odd", "a[2].lcm")));
    assert!(!is_only_glob(&at("odd", "none.lcm")));
}

#[test]
fn any_place_reads_as_it_is() {
    let all = bytes(700_001);
    MEMORY.set("places", "a", all.clone());
    let mut log = LogFile::open(&at("places", "a")).unwrap();
    assert_eq!((log.len(), log.is_seekable()), (Some(700_001), true));
    for (position, len) in [(0, 10), (5, 70_000), (700_000, 9), (650_000, 50_001), (3, 700_001)] {
        let mut buffer = vec![0; len];
        let read = log.read_at(position as u64, &mut buffer).unwrap();
        assert_eq!(read, len.min(700_001 - position), "{position}");
        assert!(buffer[..read] == all[position..position + read], "{position}");
    }
    for position in [700_001, u64::MAX] {
        assert_eq!(log.read_at(position, &mut [0]).unwrap(), 0);
    }
}

#[test]
fn looking_around_costs_little_and_reading_on_few_requests() {
    let all = bytes(32 << 20);
    MEMORY.set("costs", "a", all.clone());
    let mut log = LogFile::open(&at("costs", "a")).unwrap();
    for sample in 0..64 {
        log.read_at(sample * (512 << 10), &mut [0; 512]).unwrap();
    }
    let (read, _) = asked("costs");
    assert!(read <= 3 << 20, "{read}");
    let (before, requests) = asked("costs");
    let (mut buffer, mut position) = (vec![0; 256 << 10], 0);
    loop {
        let len = log.read_at(position, &mut buffer).unwrap();
        assert!(buffer[..len] == all[position as usize..][..len]);
        position += len as u64;
        if len == 0 {
            break;
        }
    }
    let (after, more) = asked("costs");
    assert_eq!(after - before, 32 << 20);
    assert!(more - requests < 30, "{}", more - requests);
}

#[test]
fn an_end_that_is_read_backwards_is_asked_for_once() {
    MEMORY.set("tails", "a", bytes(1 << 20));
    let mut log = LogFile::open_plain(&at("tails", "a")).unwrap();
    for back in [8, 100, 60_000] {
        log.read_at((1 << 20) - back, &mut [0; 8]).unwrap();
    }
    assert_eq!(asked("tails"), (64 << 10, 1));
}

#[test]
fn an_object_that_changes_between_two_reads_is_an_error() {
    MEMORY.set("changes", "a", bytes(1 << 20));
    let path = at("changes", "a");
    assert_eq!(expand(std::slice::from_ref(&path)).unwrap()[0].bytes, Some(1 << 20));
    MEMORY.set("changes", "a", bytes(1 << 20));
    for open in [LogFile::open(&path), LogFile::open_plain(&path)] {
        let read = open.and_then(|mut log| log.read_at(0, &mut [0; 8]));
        let error = read.unwrap_err().to_string();
        assert!(error.contains("has changed") && error.contains("mem://changes/a"), "{error}");
    }
}

#[test]
fn compressed_objects_read_as_what_they_hold() {
    let plain = bytes(3 << 20);
    MEMORY.set("packed", "a.zst", zstd::encode_all(&plain[..], 1).unwrap());
    let path = at("packed", "a.zst");
    assert!(is_zstd(&path).unwrap());
    let mut log = LogFile::open(&path).unwrap();
    let mut buffer = vec![0; plain.len() + 1];
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), plain.len());
    assert!(buffer.starts_with(&plain));
    for len in [0, 4, 64 << 10, 100_000, plain.len()] {
        assert_eq!(head(&path, len).unwrap(), plain[..len]);
    }
    assert_eq!(head(&path, plain.len() + 1).unwrap(), plain);
}

#[test]
fn a_compressed_object_that_cannot_be_read_to_its_end_is_an_error_and_no_damage() {
    let plain: Vec<u8> =
        (0..2_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    MEMORY.set("unread", "a.zst", packed.clone());
    let mut log = LogFile::open(&at("unread", "a.zst")).unwrap();
    assert_eq!(log.read_at(0, &mut [0; 100]).unwrap(), 100);
    MEMORY.set("unread", "a.zst", packed);
    let error = log.read_at(0, &mut vec![0; plain.len()]).unwrap_err().to_string();
    assert!(error.contains("has changed"), "{error}");
    assert_eq!(log.decompression_error(), None);
}

#[test]
fn what_is_long_is_brought_in_several_requests() {
    let all = bytes(40 << 20);
    MEMORY.set("longest", "a", all.clone());
    let mut log = LogFile::open(&at("longest", "a")).unwrap();
    let mut buffer = vec![0; all.len()];
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), all.len());
    assert!(buffer == all);
    let (read, requests) = asked("longest");
    assert!(read < 41 << 20 && (3..20).contains(&requests), "{read} in {requests}");
}

#[test]
fn what_is_there_is_told_of_objects_as_of_files() {
    MEMORY.set("there", "a/b", "text");
    MEMORY.set("there", "empty", "");
    let found = |key: &str| path_kind(&at("there", key)).unwrap();
    assert_eq!(found("a/b"), Some(PathKind::File(4)));
    assert_eq!((found("a"), found("a/")), (Some(PathKind::Folder), Some(PathKind::Folder)));
    assert_eq!((found("b"), found("a/b/")), (None, None));
    assert_eq!(read(&at("there", "a/b")).unwrap(), b"text");
    assert_eq!(read(&at("there", "empty")).unwrap(), b"");
    assert_eq!(read_if_exists(&at("there", "none")).unwrap(), None);
    let below = objects_below(&at("there", "a")).unwrap().unwrap();
    assert_eq!(below, [Input { path: at("there", "a/b"), bytes: Some(4) }]);
    assert!(objects_below(Path::new("/tmp")).unwrap().is_none());
}

#[test]
fn an_object_that_was_listed_is_no_folder_without_a_request() {
    MEMORY.set("listed", "in/a", "text");
    expand(&[at("listed", "in/*")]).unwrap();
    let before = MEMORY.with("listed", |bucket| bucket.asked.len());
    assert!(!is_folder(&at("listed", "in/a")));
    assert_eq!(MEMORY.with("listed", |bucket| bucket.asked.len()), before);
    assert!(is_folder(&at("listed", "in")) && is_folder(&at("listed", "in/")));
}

#[test]
fn two_names_of_one_object_have_one_identity() {
    let of = |text: &str| FileIdentity::read(Path::new(text)).unwrap();
    assert_eq!(of("mem://b/a"), of("memory://b/a"));
    assert_ne!(of("mem://b/a"), of("mem://b/c"));
}
