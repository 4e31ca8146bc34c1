//! Message type numbers, computed from names, and the table of known names.
//!
//! A number cannot be turned back into a name, only compared with those of known names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// The type of camera images, `ImageM`.
pub(crate) const IMAGE: u32 = simple_hash(b"ImageM");
/// The type of inertial states, `IMUStateM`.
pub const IMU_STATE: u32 = simple_hash(b"IMUStateM");
/// The type of laser scans, `LaserRange2DDataM`.
pub const LASER_DATA: u32 = simple_hash(b"LaserRange2DDataM");
/// The type of laser scanners' settings, `LaserRange2DConfigM`.
pub const LASER_CONFIG: u32 = simple_hash(b"LaserRange2DConfigM");

/// The built-in names.
pub(crate) const BUILT_IN: [&str; 4] =
    ["ImageM", "IMUStateM", "LaserRange2DDataM", "LaserRange2DConfigM"];

/// Whether a type is one of the built-in ones.
pub(crate) fn is_built_in(type_id: u32) -> bool {
    matches!(type_id, IMAGE | IMU_STATE | LASER_DATA | LASER_CONFIG)
}

/// The number of a name: the sum of its bytes, byte `i` weighted by `119 + i`, in 32 bits.
pub const fn simple_hash(name: &[u8]) -> u32 {
    let (mut sum, mut weight, mut rest) = (0u32, 119u32, name);
    while let Some((byte, after)) = rest.split_first() {
        sum = sum.wrapping_add(weight.wrapping_mul(*byte as u32));
        (weight, rest) = (weight.wrapping_add(1), after);
    }
    sum
}

/// A type number as shown for messages without a known name: `0x0001BE24`.
pub(crate) fn hex(type_id: u32) -> String {
    format!("{type_id:#010X}").replacen("0X", "0x", 1)
}

/// Parses the output of [`hex`].
pub(crate) fn from_hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 8)?;
    u32::from_str_radix(digits, 16).ok().filter(|type_id| hex(*type_id) == text)
}

/// Message names by number: the built-in ones and others, with unique numbers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct MessageNames(BTreeMap<u32, Arc<str>>);

impl MessageNames {
    /// The built-in names and `names`.
    ///
    /// `Err` if two names have the same number, or one is empty.
    pub fn with<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Result<Self, String> {
        let mut known = Self(BTreeMap::new());
        BUILT_IN.iter().try_for_each(|name| known.insert(name))?;
        names.into_iter().try_for_each(|name| known.insert(name.as_ref()))?;
        Ok(known)
    }

    fn insert(&mut self, name: &str) -> Result<(), String> {
        if name.is_empty() {
            return Err("a message has an empty name".into());
        }
        let type_id = simple_hash(name.as_bytes());
        let known = self.0.entry(type_id).or_insert_with(|| name.into());
        if **known == *name {
            return Ok(());
        }
        let number = hex(type_id);
        Err(format!("`{known}` and `{name}` have the same number {number}; remove one of them"))
    }

    /// The name with this number.
    pub fn name(&self, type_id: u32) -> Option<&Arc<str>> {
        self.0.get(&type_id)
    }
}

impl Default for MessageNames {
    fn default() -> Self {
        let named = |name: &str| (simple_hash(name.as_bytes()), Arc::from(name));
        Self(BUILT_IN.into_iter().map(named).collect())
    }
}

impl TryFrom<Vec<String>> for MessageNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        Self::with(names)
    }
}

impl JsonSchema for MessageNames {
    fn schema_name() -> Cow<'static, str> {
        "MessageNames".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string" } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_built_in_names_have_the_numbers_that_logs_have() {
        assert_eq!(IMAGE, 0x0001_09C9);
        assert_eq!(IMU_STATE, 0x0001_8D07);
        assert_eq!(LASER_DATA, 0x0003_0910);
        assert_eq!(LASER_CONFIG, 0x0003_7DF6);
        assert_eq!((simple_hash(b"OdometryM"), simple_hash(b"")), (0x0001_BE24, 0));
    }

    #[test]
    fn the_default_is_the_built_in_names() {
        assert_eq!(MessageNames::default(), MessageNames::with::<&str>([]).unwrap());
        assert_eq!(MessageNames::default().name(IMAGE).map(|name| &**name), Some("ImageM"));
    }

    #[test]
    fn names_with_one_number_are_refused_and_both_are_named() {
        let error = MessageNames::with(["bab", "aca"]).unwrap_err();
        assert!(error.contains("`bab`") && error.contains("`aca`"), "{error}");
        // Differs from `ImageM` in two neighbours only, in a way that the sum does not see.
        let twin =
            (b'!'..b'~').flat_map(|a| (b'!'..b'~').map(move |b| [a, b, b'a', b'g', b'e', b'M']));
        let twin = twin.map(|bytes| bytes.map(char::from).iter().collect::<String>());
        let twin = twin.into_iter().find(|t| simple_hash(t.as_bytes()) == IMAGE && t != "ImageM");
        if let Some(twin) = twin {
            assert!(MessageNames::with([&twin]).unwrap_err().contains("`ImageM`"));
        }
        assert!(MessageNames::with([""]).is_err());
        assert!(MessageNames::with(["OdometryM", "OdometryM", "ImageM"]).is_ok());
    }

    proptest! {
        #[test]
        fn a_number_survives_being_shown(type_id: u32) {
            prop_assert_eq!(from_hex(&hex(type_id)), Some(type_id));
        }

        #[test]
        fn only_what_is_shown_is_read(text in "0x[0-9A-Fa-f+ ]{7,9}") {
            if let Some(type_id) = from_hex(&text) {
                prop_assert_eq!(hex(type_id), text);
            }
        }
    }
}
