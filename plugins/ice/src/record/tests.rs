//! Valid records, and the errors of invalid ones.

use proptest::prelude::*;

use super::flat::*;
use super::*;
use crate::plan::compile;
use crate::slice::{SliceLibrary, TypeFile};
use crate::wire::{SPELLED, put_sized};

const LASER: &str = "module orca {
    struct Time { int seconds; int useconds; };
    class OrcaObject { Time timeStamp; };
    sequence<float> Ranges;
    sequence<byte> Bytes;
    class RangeScannerData extends OrcaObject {
        Ranges ranges; float startAngle; float angleIncrement;
    };
    class LaserData extends RangeScannerData { Bytes intensities; };
};";

fn top(text: &str, name: &str) -> PlanRoot {
    let library =
        SliceLibrary::from_files(vec![TypeFile { path: "t.ice".into(), text: text.to_owned() }]);
    assert!(library.mistakes().is_empty(), "{:?}", library.mistakes());
    let id = library.ids().find(|id| library.name(*id) == name).unwrap();
    compile(&library, id).unwrap().root
}

fn named(name: &str, body: &[u8]) -> Vec<u8> {
    let mut out = vec![SPELLED];
    put_sized(&mut out, name.as_bytes()).unwrap();
    put_body(body, &mut out).unwrap();
    out
}

fn numbered(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![NUMBERED, number];
    put_body(body, &mut out).unwrap();
    out
}

/// A laser scan without beams.
fn scan() -> Vec<u8> {
    let angles = [&[0][..], &1.5_f32.to_le_bytes(), &0.5_f32.to_le_bytes()].concat();
    let stamp = [7_i32.to_le_bytes(), 9_i32.to_le_bytes()].concat();
    [
        &[255, 255, 255, 255, 1, 1, 0, 0, 0][..],
        &named("::orca::LaserData", &[0]),
        &named("::orca::RangeScannerData", &angles),
        &named("::orca::OrcaObject", &stamp),
        &named("::Ice::Object", &[0]),
        &[0],
    ]
    .concat()
}

fn refused(top: &PlanRoot, record: &[u8]) -> RecordFault {
    let reason = to_linear(top, record, &mut Vec::new()).unwrap_err();
    assert_eq!(one_form(top, record).unwrap_err(), reason);
    reason
}

/// The linear form of a record, of which a batch consists, and its number of parts.
fn one_form(top: &PlanRoot, record: &[u8]) -> Result<(Vec<u8>, usize), RecordFault> {
    let (unfolded, mut later) = (UnfoldedForms::new(top, 1), Vec::new());
    let mut parts = vec![LinearForms::new(&unfolded).next(top, record, &mut later)?];
    parts.extend(later.iter().rev());
    Ok((parts.concat(), parts.len()))
}

fn there_and_back(top: &PlanRoot, record: &[u8]) -> Vec<u8> {
    let mut scratch = Vec::new();
    let linear = to_linear(top, record, &mut scratch).unwrap().to_vec();
    let mut again = vec![5];
    from_linear(top, &linear, &mut again).unwrap();
    assert_eq!(&again[1..], record);
    assert_eq!(one_form(top, record).unwrap().0, linear);
    linear
}

#[test]
fn only_the_usual_record_of_a_class_has_its_linear_form_in_it() {
    let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
    let (form, parts) = one_form(&laser, &scan).unwrap();
    assert_eq!(parts, 4);
    assert_eq!(linear_len(&laser, scan.len()), form.len());
    let base = top(LASER, "::orca::RangeScannerData");
    assert_eq!(one_form(&base, &scan).unwrap().1, 1, "a slice is undeclared");
    let root = top("module Ice { class Object { byte b; }; };", "::Ice::Object");
    let named = [&scan[..9], &named("::Ice::Object", &[7]), &scan[scan.len() - 21..]].concat();
    refused(&root, &named);
    // A batch of both kinds, with a bad one between them.
    let numbered = bomb(300, 10);
    let (unfolded, mut later) = (UnfoldedForms::new(&laser, 4), Vec::new());
    let mut forms = LinearForms::new(&unfolded);
    for record in [&numbered, &scan, &scan[1..].to_vec(), &numbered] {
        later.clear();
        let first = forms.next(&laser, record, &mut later);
        let form = first.map(|first| [&[first][..], &later].concat().len());
        assert_eq!(form, one_form(&laser, record).map(|(_, parts)| parts));
    }
}

#[test]
fn an_instance_becomes_its_members_with_those_of_the_root_first() {
    let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
    assert_eq!(scan.len(), 125);
    let linear = there_and_back(&laser, &scan);
    let mut expected = [7_i32.to_le_bytes(), 9_i32.to_le_bytes()].concat();
    expected.extend([0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0x3f, 0, 0, 0, 0]);
    assert_eq!(linear, expected);
    let names = first_instance_classes(&scan).unwrap();
    assert_eq!(names[0], b"::orca::LaserData");
    assert_eq!(names[3], ROOT);
}

#[test]
fn an_undeclared_slice_is_kept_with_its_name() {
    let (scan, base) = (scan(), top(LASER, "::orca::RangeScannerData"));
    let linear = there_and_back(&base, &scan);
    let sliced = named("::orca::LaserData", &[0]);
    assert_eq!(linear[17] as usize, sliced.len());
    assert_eq!(linear[18..linear.len() - 2], sliced);
    assert_eq!(refused(&top("class Other { int i; };", "::Other"), &scan), UNDECLARED_CLASS);
}

/// A record that refers to a class with a long name by number, over and over.
fn bomb(name: usize, times: usize) -> Vec<u8> {
    let scan = scan();
    let (head, slices) = scan.split_at(9);
    let own = named(&"x".repeat(name), &[]);
    [head, &own, &numbered(1, &[]).repeat(times), slices].concat()
}

#[test]
fn a_record_that_would_grow_far_beyond_its_length_is_refused_before_it_does() {
    let laser = top(LASER, "::orca::LaserData");
    let (mut scratch, record) = (Vec::new(), bomb(60_000, 10_000));
    assert_eq!(to_linear(&laser, &record, &mut scratch).unwrap_err(), TOO_LARGE);
    assert!(scratch.capacity() <= MAX_GROWTH * record.len() + GROWTH_ALLOWANCE);
    there_and_back(&laser, &bomb(300, 10));
}

#[test]
fn names_of_classes_are_no_longer_together_than_their_record() {
    let record = bomb(60_000, 10_000);
    let names = first_instance_classes(&record).unwrap();
    assert_eq!(names.len(), 5);
    assert!(names.iter().map(|name| name.len()).sum::<usize>() < record.len());
}

#[test]
fn a_record_that_is_cut_off_or_too_long_is_refused() {
    let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
    for end in 0..scan.len() {
        refused(&laser, &scan[..end]);
    }
    assert_eq!(refused(&laser, &[&scan[..], &[0]].concat()), TRAILING_BYTES);
}

#[test]
fn a_record_whose_ids_do_not_start_at_1_names_its_type_and_is_refused() {
    let (mut scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
    scan[0] = 249;
    scan[5] = 7;
    assert_eq!(first_instance_classes(&scan).unwrap()[0], b"::orca::LaserData");
    assert_eq!(refused(&laser, &scan), BAD_INSTANCE_IDS);
    scan[..4].copy_from_slice(&[7, 0, 0, 0]);
    assert_eq!(first_instance_classes(&scan), None);
}

#[test]
fn non_canonical_records_are_refused() {
    let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
    let with = |at: usize, byte: u8| {
        let mut other = scan.clone();
        other[at] = byte;
        refused(&laser, &other)
    };
    assert_eq!(with(0, 254), NO_FIRST_REFERENCE);
    assert_eq!(with(5, 2), BAD_INSTANCE_IDS);
    assert_eq!(with(9, 2), BAD_SLICE_KIND);
    assert_eq!(with(9, 1), UNKNOWN_CLASS_NUMBER);
    assert_eq!(with(10, 0), EMPTY_CLASS_NAME);
    assert_eq!(with(28, 3), BAD_SLICE_LENGTH);
    assert_eq!(with(28, 4), EMPTY_CLASS_NAME);
    assert_eq!(with(123, 1), WRONG_BASES);
    // An instance without a reference.
    let second = [&[1, 2, 0, 0, 0][..], &numbered(4, &[0]), &[0]].concat();
    assert_eq!(refused(&laser, &[&scan[..124], &second].concat()), UNREFERENCED_INSTANCE);
}

const TREE: &str = "
    class Leaf { byte kind; };
    class Odd extends Leaf { bool is; Leaf inner; };
    class Pair { Leaf a; Leaf b; };
    sequence<Pair> Pairs;
    dictionary<string, Leaf> Named;
    enum Colour { red, green };
    struct World { Colour colour; Pairs pairs; Named named; };
";

fn all(text: &str) -> (PlanRoot, PlanRoot) {
    // `Odd` holds `Leaf`, which it extends, so it may hold itself.
    (top(text, "::Pair"), top(text, "::World"))
}

#[test]
fn instances_are_restored_in_their_order() {
    let (pair, all) = all(&TREE.replace("Leaf inner;", ""));
    let leaf = |id: u8, kind: u8, first: bool| {
        let own = if first { named("::Leaf", &[kind]) } else { numbered(3, &[kind]) };
        [&[id, 0, 0, 0][..], &own, &numbered(2, &[0])].concat()
    };
    let head = [&[255, 255, 255, 255, 1, 1, 0, 0, 0][..]].concat();
    let own =
        [named("::Pair", &[254, 255, 255, 255, 253, 255, 255, 255]), named("::Ice::Object", &[0])];
    let rising = [&head[..], &own.concat(), &[2], &leaf(2, 7, true), &leaf(3, 8, false), &[0]];
    let falling = [&head[..], &own.concat(), &[2], &leaf(3, 8, true), &leaf(2, 7, false), &[0]];
    assert_eq!(there_and_back(&pair, &rising.concat()), [1, 7, 0, 1, 8, 0, 0, 0, 0]);
    let order = [3, 1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0];
    let linear = there_and_back(&pair, &falling.concat());
    assert_eq!(linear, [&[1, 7, 0, 1, 8, 0, 0][..], &order].concat());
    // Batches that Ice would not make.
    let apart = [&head[..], &own.concat(), &[1], &leaf(2, 7, true), &[1], &leaf(3, 8, false), &[0]];
    assert_eq!(refused(&pair, &apart.concat()), NOT_CANONICAL);
    // A null reference in a struct, and one to an instance that is not there.
    let record = |id: u8, tail: &[u8]| [&[1, 0, 1, 1, b'x', id, 0, 0, 0], tail].concat();
    assert_eq!(there_and_back(&all, &record(0, &[0])), [1, 0, 1, 1, b'x', 0, 0, 0]);
    assert_eq!(refused(&all, &record(1, &[0])), DANGLING_REFERENCE);
}

/// A pair of references to instances of `Leaf` with these ids, each present once.
fn pair_of(a: u8, b: u8) -> Vec<u8> {
    let leaf = |id: u8| {
        let own = if id == 2 { named("::Leaf", &[id]) } else { numbered(3, &[id]) };
        [&[id, 0, 0, 0][..], &own, &numbered(2, &[0])].concat()
    };
    let (a, b, count) = (256 - u16::from(a), 256 - u16::from(b), a.max(b) - 1);
    let references = [a as u8, 255, 255, 255, b as u8, 255, 255, 255];
    let own = [named("::Pair", &references), named("::Ice::Object", &[0])].concat();
    let leaves: Vec<u8> = (2..2 + count).flat_map(leaf).collect();
    [&[255, 255, 255, 255, 1, 1, 0, 0, 0][..], &own, &[count], &leaves, &[0]].concat()
}

#[test]
fn a_shared_instance_is_repeated_and_restored_as_one() {
    let (pair, _) = all(&TREE.replace("Leaf inner;", ""));
    let shared = there_and_back(&pair, &pair_of(2, 2));
    let ids = [&[0, 3][..], &[1, 0, 0, 0], &[2, 0, 0, 0], &[2, 0, 0, 0]].concat();
    assert_eq!(shared, [&[1, 2, 0, 1, 2, 0, 0][..], &ids].concat());
    assert_eq!(there_and_back(&pair, &pair_of(2, 3)), [1, 2, 0, 1, 3, 0, 0, 0, 0]);
    // One of the copies, or the ids, were changed.
    for (at, byte, why) in
        [(4, 9, DIFFERENT_COPIES), (17, 7, BAD_INSTANCE_IDS), (8, 2, TRAILING_BYTES)]
    {
        let mut other = shared.clone();
        other[at] = byte;
        assert_eq!(from_linear(&pair, &other, &mut Vec::new()), Err(why), "{at}");
    }
    // Without the ids they are two.
    let apart = [&shared[..8], &[0]].concat();
    let mut made = Vec::new();
    from_linear(&pair, &apart, &mut made).unwrap();
    assert!(made.len() > pair_of(2, 2).len());
}

/// Instances that hold each other many times over, level by level: as a tree they would be endless.
#[test]
fn shared_instances_that_multiply_are_refused_before_they_do() {
    let levels = 8_u8;
    let class = |n: u8| format!("class L{n} {{ S{} s; }}; sequence<L{n}> S{n};", n + 1);
    let classes: String = (0..levels).rev().map(class).collect();
    let text = format!("class L{levels} {{ byte b; }}; sequence<L{levels}> S{levels}; {classes}");
    let top = top(&text, "::L0");
    let record = |times: u8| {
        let mut record = vec![255, 255, 255, 255];
        for n in 0..=levels {
            let next = (-(i32::from(n) + 2)).to_le_bytes().repeat(usize::from(times));
            let body = if n == levels { vec![5] } else { [&[times][..], &next].concat() };
            let root = if n == 0 { named("::Ice::Object", &[0]) } else { numbered(2, &[0]) };
            record.extend(
                [&[1, n + 1, 0, 0, 0][..], &named(&format!("::L{n}"), &body), &root].concat(),
            );
        }
        [&record[..], &[0]].concat()
    };
    there_and_back(&top, &record(1));
    there_and_back(&top, &record(2));
    let mut scratch = Vec::new();
    let long = record(100);
    assert_eq!(to_linear(&top, &long, &mut scratch).unwrap_err(), TOO_LARGE);
    assert!(scratch.len() <= (MAX_GROWTH + 1) * long.len() + GROWTH_ALLOWANCE);
}

#[test]
fn a_class_that_may_hold_itself_has_no_form() {
    let library =
        SliceLibrary::from_files(vec![TypeFile { path: "t.ice".into(), text: TREE.to_owned() }]);
    let id = library.ids().find(|id| library.name(*id) == "::Pair").unwrap();
    assert!(compile(&library, id).unwrap_err().contains("may contain another one"));
}

#[test]
fn a_struct_is_checked_to_its_last_byte() {
    let text = "enum E { a, b = 4 }; struct S { bool is; E e; string text; };";
    let top = top(text, "::S");
    assert_eq!(there_and_back(&top, &[1, 4, 1, b'x', 0]), [1, 4, 1, b'x']);
    assert_eq!(there_and_back(&top, &[2, 4, 1, b'x', 0]), [2, 4, 1, b'x']);
    assert!(!matches_plan(&top, &[2, 4, 1, b'x', 0], Booleans::ZeroOrOne));
    assert_eq!(refused(&top, &[1, 3, 1, b'x', 0]), UNKNOWN_ENUM_VALUE);
    assert_eq!(refused(&top, &[1, 4, 2, b'x']), TOO_SHORT);
    assert_eq!(refused(&top, &[1, 4, 1, b'x']), TOO_SHORT);
    assert_eq!(refused(&top, &[1, 4, 1, b'x', 1]), NO_EMPTY_LIST);
    assert_eq!(refused(&top, &[1, 4, 1, b'x', 0, 0]), TRAILING_BYTES);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(
        flips in prop::collection::vec((0..125_usize, any::<u8>()), 0..6),
        tail in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let (pair, all) = all(&TREE.replace("Leaf inner;", ""));
        let laser = top(LASER, "::orca::LaserData");
        let mut record = scan();
        flips.into_iter().for_each(|(at, byte)| record[at] = byte);
        record.extend(&tail);
        for top in [&laser, &pair, &all] {
            for bytes in [&record, &tail] {
                let mut scratch = Vec::new();
                let linear = to_linear(top, bytes, &mut scratch);
                let form = one_form(top, bytes).map(|(form, _)| form);
                prop_assert_eq!(form, linear.map(<[u8]>::to_vec));
                let Ok(linear) = linear else { continue };
                let mut again = Vec::new();
                prop_assert_eq!(from_linear(top, linear, &mut again), Ok(()));
                prop_assert_eq!(&again, bytes);
            }
            // An arbitrary linear form becomes a valid record, or none.
            let mut made = Vec::new();
            if from_linear(top, &tail, &mut made).is_ok() {
                prop_assert!(matches_plan(top, &made, Booleans::Any));
            }
        }
    }
}
