//! What the shapes of fields say before they are compiled.

use super::{Endian, Extent, FieldShape, NumberType, PayloadField};

/// The values of an enum, or of an array of enums.
pub(super) fn enum_values(shape: &FieldShape) -> Option<&[(String, i32)]> {
    match shape {
        FieldShape::Enum(values) => Some(values),
        FieldShape::Fixed(item, _) | FieldShape::Counted(item, _) => enum_values(item),
        _ => None,
    }
}

/// The members that count the elements of an array.
pub(super) fn counting_members(shape: &FieldShape) -> Vec<usize> {
    match shape {
        FieldShape::CountedBytes(by) | FieldShape::Span(_, Extent::Counted(by)) => vec![*by],
        FieldShape::Counted(item, by) => {
            let mut all = counting_members(item);
            all.push(*by);
            all
        }
        FieldShape::Fixed(item, _)
        | FieldShape::List(item)
        | FieldShape::InOrder(_, item)
        | FieldShape::Views(item, _) => counting_members(item),
        _ => Vec::new(),
    }
}

pub(super) fn is_integer(member: Option<&PayloadField>) -> bool {
    member.is_some_and(|member| integer(&member.shape).is_some())
}

/// The type of a single integer, and its byte order if that is its own.
pub(super) fn integer(shape: &FieldShape) -> Option<(NumberType, Option<Endian>)> {
    match shape {
        FieldShape::Number(of) if of.is_float() => None,
        FieldShape::Number(of) => Some((*of, None)),
        FieldShape::InOrder(endian, of) => Some((integer(of)?.0, Some(*endian))),
        FieldShape::Views(of, _) => integer(of),
        _ => None,
    }
}

/// Whether a value never takes any bytes, and so has no column.
pub(super) fn takes_no_bytes(shape: &FieldShape) -> bool {
    match shape {
        FieldShape::Fixed(item, count) => *count == 0 || takes_no_bytes(item),
        FieldShape::FixedBytes(size) => *size == 0,
        FieldShape::Struct(members) => members.iter().all(|member| takes_no_bytes(&member.shape)),
        _ => false,
    }
}

/// The members of all cases of a variant, and for each case which of them it has.
pub(super) fn members_of_cases(
    cases: &[(String, Vec<PayloadField>)],
) -> Result<(Vec<&PayloadField>, Vec<Vec<usize>>), String> {
    if cases.len() > usize::from(u8::MAX) {
        return Err("it has more than 255 cases".to_owned());
    }
    let (mut all, mut places): (Vec<&PayloadField>, _) = (Vec::new(), Vec::new());
    for (_, members) in cases {
        let mut case = Vec::new();
        for member in members {
            if !counting_members(&member.shape).is_empty() {
                return Err("a list cannot be counted by a member inside a variant".to_owned());
            }
            let same_name = all.iter().position(|other| other.name == member.name);
            let place = same_name.unwrap_or(all.len());
            if same_name.is_none() {
                all.push(member);
            } else if all.get(place).is_some_and(|other| other.shape != member.shape) {
                return Err(format!("`{}` differs between its classes", member.name));
            }
            case.push(place);
        }
        places.push(case);
    }
    Ok((all, places))
}
