//! What the shapes of fields say before they are compiled.

use super::{Endian, Extent, FieldShape, NumberType, PayloadField, WireRules};

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

/// The alignment of values that follow each other without padding, wherever the first of them
/// starts: all have the same layout. `None` if the layout depends on where they start.
pub(super) fn uniform_alignment(shape: &FieldShape, rules: &WireRules) -> Option<usize> {
    let mut layout = Layout { rules, size: 0, first: None, most: 1 };
    layout.add(shape)?;
    let is_uniform = layout.first == Some(layout.most) && layout.size.is_multiple_of(layout.most);
    is_uniform.then_some(layout.most)
}

/// The layout of numbers that start at a multiple of every alignment.
struct Layout<'r> {
    rules: &'r WireRules,
    size: usize,
    /// The alignment of the first number.
    first: Option<usize>,
    /// The greatest alignment.
    most: usize,
}

impl Layout<'_> {
    fn add(&mut self, shape: &FieldShape) -> Option<()> {
        let width = match shape {
            FieldShape::Number(of) => of.width(),
            FieldShape::Bool => self.rules.booleans,
            FieldShape::Enum(values) => self.rules.enums.width(values.len()),
            FieldShape::FixedBytes(size) => return self.numbers(1, *size),
            FieldShape::Fixed(item, count) => {
                let alignment = uniform_alignment(item, self.rules)?;
                let mut one = Layout { rules: self.rules, size: 0, first: None, most: 1 };
                one.add(item)?;
                return self.numbers(alignment, one.size.checked_mul(*count)?);
            }
            FieldShape::Struct(members) => {
                return members.iter().try_for_each(|member| self.add(&member.shape));
            }
            _ => return None,
        };
        self.numbers(self.rules.alignment_of(width), width)
    }

    fn numbers(&mut self, alignment: usize, size: usize) -> Option<()> {
        if size > 0 {
            self.first = self.first.or(Some(alignment));
            self.most = self.most.max(alignment);
            self.size = self.size.next_multiple_of(alignment).checked_add(size)?;
        }
        Some(())
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
