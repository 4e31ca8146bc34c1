//! What the first bytes of an object show, without decoding it.

#![warn(clippy::indexing_slicing)]

use crate::master::is_file_name;

/// The maximum end of a class name in an object.
pub(crate) const CLASS_NAME_END: usize = 12 + u8::MAX as usize;

/// The class name of an object that starts with these bytes. `None` if it does not start like an
/// object of a class: with a reference, and the first slice of the object that it refers to.
pub(crate) fn class_name(object: &[u8]) -> Option<&[u8]> {
    let (reference, rest) = object.split_first_chunk()?;
    let (batch, rest) = rest.split_first()?;
    let (_instance, rest) = rest.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first()?;
    let (len, rest) = rest.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    let is_class = i32::from_le_bytes(*reference) < 0 && *batch > 0 && *kind == 0;
    (is_class && name.starts_with(b"::")).then_some(name)
}

/// Whether an object of `len` bytes that starts with these is an estimated position of dialect C: a
/// time, a count, as many hypotheses, and the 0 at the end.
pub(crate) fn is_localise2d(object: &[u8], len: u64) -> bool {
    const HYPOTHESIS: u64 = 9 * 8 + 4;
    let count = object.get(8).filter(|count| **count < u8::MAX);
    count.is_some_and(|count| len == 8 + 1 + u64::from(*count) * HYPOTHESIS + 1)
}

/// The name of the picture that a camera's record is about.
pub(crate) fn picture_name(record: &[u8]) -> Option<&[u8]> {
    split_picture_info(record).map(|(name, _)| name)
}

/// Whether a record is about a picture, to its last byte.
pub(crate) fn is_picture_info(record: &[u8]) -> bool {
    split_picture_info(record).is_some_and(|(_, rest)| rest == [0])
}

/// The picture name in a camera's record: length-prefixed, after four integers and a time. And what
/// is behind it.
fn split_picture_info(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = record.get(4 * size_of::<i32>() + size_of::<f64>()..)?;
    let (len, text) = match text.split_first()? {
        (0xff, rest) => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(i32::from_le_bytes(*len)).ok()?, rest)
        }
        (len, rest) => (usize::from(*len), rest),
    };
    text.split_at_checked(len).filter(|(name, _)| is_file_name(name))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn objects_of_classes_have_a_name() {
        let object = |name: &str| {
            let mut bytes = b"\xff\xff\xff\xff\x01\x01\0\0\0\0".to_vec();
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
            bytes
        };
        assert_eq!(class_name(&object("::orca::LaserData")), Some(&b"::orca::LaserData"[..]));
        assert_eq!(class_name(&object("LaserData")), None);
        for cut in 0..20 {
            assert_eq!(class_name(&object("::orca::LaserData")[..cut]), None);
        }
    }

    #[test]
    fn a_record_about_a_picture_ends_behind_its_name() {
        let info = [&[0; 24][..], b"\x05a.jpg\0"].concat();
        assert_eq!((picture_name(&info), is_picture_info(&info)), (Some(&b"a.jpg"[..]), true));
        let longer = [&info[..], &[0]].concat();
        assert_eq!((picture_name(&longer), is_picture_info(&longer)), (Some(&b"a.jpg"[..]), false));
        for cut in 0..info.len() {
            assert!(!is_picture_info(&info[..cut]), "{cut}");
        }
        assert!(
            !is_picture_info(&[0; 31]) && !is_picture_info(&[&[0; 24][..], b"\x01/\0"].concat())
        );
    }

    #[test]
    fn a_position_has_as_many_hypotheses_as_it_counts() {
        let object = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
        assert!(is_localise2d(&object, 162) && !is_localise2d(&object, 238));
        assert!(!is_localise2d(&object[..8], 162));
    }
}
