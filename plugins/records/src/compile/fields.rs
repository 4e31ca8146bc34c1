//! Lays the fields of a description out: where each lies in a record, how long it is, and which columns it
//! becomes. What a field is for is not looked at.

use std::collections::BTreeMap;

use crate::columns::{At, Column, Shape, What};
use crate::format::Spot;
use crate::options::{Amount, Bits, Constant, Field, Options, Role, Type};
use crate::walk::{MOST_REGISTERS, Size, Step, Walk};
use crate::wire::{Number, Word};

use super::{Draft, Mistakes, Path, path};

/// More fields than this serve nobody.
const MOST_FIELDS: usize = 2_000;

/// The word for all that is left.
const REST: &str = "rest";

/// A field that has been laid out.
#[derive(Clone, Debug)]
pub(super) struct Laid<'o> {
    pub(super) field: &'o Field,
    /// The keys that lead to it.
    pub(super) path: Path,
    pub(super) at: At,
    /// What it is, if it is numbers.
    pub(super) word: Option<Word>,
    /// Whether it is a number or text alone, and no list.
    pub(super) shape: Shape,
    pub(super) columns: Vec<Column>,
    pub(super) constant: Option<Vec<u8>>,
}

impl Laid<'_> {
    pub(super) fn has(&self, role: Role) -> bool {
        self.field.role == Some(role)
    }

    /// Where it lies, if that is always the same, and how long it is then.
    pub(super) fn spot(&self) -> Option<(Spot, usize)> {
        match self.at {
            At::Spot(spot, len) => Some((spot, len)),
            At::Step(_) => None,
        }
    }

    /// The number it is, if it is one alone, without a point, and always in the same place.
    pub(super) fn whole(&self) -> Option<(Spot, Word)> {
        let word = self.word.filter(|word| !word.number.is_float())?;
        (self.shape == Shape::One).then(|| self.spot().map(|(spot, _)| (spot, word))).flatten()
    }

    pub(super) fn wrong(&self, mistakes: &mut Mistakes, key: &str, what: impl Into<String>) {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        mistakes.at(&path, what);
    }
}

/// What lies between head and tail.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Always as many bytes.
    Fixed(usize),
    /// As many as the fields say.
    Walked { walk: Walk, least: usize, has_rest: bool },
    /// Anything.
    Any,
}

/// Lays fields out.
pub(super) struct Ruler<'o, 'm> {
    pub(super) options: &'o Options,
    pub(super) longest: usize,
    pub(super) mistakes: &'m mut Mistakes,
}

/// How many bytes a field has.
enum Amounts {
    Fixed { bytes: usize, shape: Shape },
    Counted { by: String, width: usize },
    Rest { width: usize },
}

impl<'o> Ruler<'o, '_> {
    /// The fields of the head, and where it ends.
    pub(super) fn head(&mut self, sync: usize) -> (Vec<Laid<'o>>, usize) {
        let (mut laid, mut at) = (Vec::new(), sync);
        for (n, field) in self.options.head.iter().enumerate() {
            let path = path(&["head", &n.to_string()]);
            if let Some((bytes, shape)) = self.fixed(field, &path, "head") {
                laid.push(self.lay(field, path, At::Spot(Spot::Start(at), bytes), shape));
                at = at.saturating_add(bytes);
            }
        }
        (laid, at)
    }

    /// The fields of the tail, and how long it is.
    pub(super) fn tail(&mut self) -> (Vec<Laid<'o>>, usize) {
        let mut sized = Vec::new();
        for (n, field) in self.options.tail.iter().enumerate() {
            let path = path(&["tail", &n.to_string()]);
            if let Some((bytes, shape)) = self.fixed(field, &path, "tail") {
                sized.push((field, path, bytes, shape));
            }
        }
        let len = sized.iter().fold(0usize, |sum, (.., bytes, _)| sum.saturating_add(*bytes));
        let (mut laid, mut before) = (Vec::new(), len);
        for (field, path, bytes, shape) in sized {
            laid.push(self.lay(field, path, At::Spot(Spot::End(before), bytes), shape));
            before = before.saturating_sub(bytes);
        }
        (laid, len)
    }

    /// The kinds with what lies between head and tail: one without a key, if there are none.
    pub(super) fn bodies(&mut self, head: &[Laid<'o>], head_len: usize) -> Vec<Draft<'o>> {
        let options = self.options;
        if options.kinds.is_empty() {
            let path = path(&["fields"]);
            let (fields, body) = self.body(&options.fields, &path, head, head_len);
            let (name, extra) = ("record".to_owned(), None);
            return vec![Draft { name, path, channel: None, extra, fields, body }];
        }
        let kinds = options.kinds.iter().map(|(key, kind)| {
            let at = path(&["kinds", key]);
            let mut fields_at = at.clone();
            fields_at.push("fields".to_owned());
            let (fields, body) = self.body(&kind.fields, &fields_at, head, head_len);
            let mut channel_at = at.clone();
            channel_at.push("channel".to_owned());
            Draft {
                name: kind.name.clone().unwrap_or_else(|| key.clone()),
                path: at,
                channel: kind.channel.as_deref().map(|channel| (channel, channel_at)),
                extra: kind.checksum_extra,
                fields,
                body,
            }
        });
        kinds.collect()
    }

    fn body(
        &mut self,
        fields: &'o [Field],
        path: &Path,
        head: &[Laid<'o>],
        head_len: usize,
    ) -> (Vec<Laid<'o>>, Body) {
        if fields.len() > MOST_FIELDS {
            self.mistakes.at(path, format!("these are more than {MOST_FIELDS} fields"));
            return (Vec::new(), Body::Fixed(0));
        }
        let mut strider = Strider { at: Some(head_len), len: 0, walk: Walk::default(), rest: None };
        let (mut laid, mut counters) = (Vec::new(), Counters::of(head));
        for (n, field) in fields.iter().enumerate() {
            let mut at = path.clone();
            at.push(n.to_string());
            if let Some(rest) = strider.rest {
                let what = format!("field {rest} takes all that is left, and this comes after it");
                self.mistakes.at(&at, what);
            }
            let Some(amounts) = self.amounts(field, &at) else { continue };
            let Some((size, shape)) = self.size(amounts, &mut counters, &at) else { continue };
            let place = strider.place(size);
            strider.stride(size, n);
            let found = self.lay(field, at, place, shape);
            counters.add(&found, strider.walk.steps.len() - 1);
            laid.push(found);
        }
        let body = strider.finish(counters);
        (laid, body)
    }

    /// The size of a field in a list in which all have a fixed one.
    fn fixed(&mut self, field: &'o Field, path: &Path, list: &str) -> Option<(usize, Shape)> {
        match self.amounts(field, path)? {
            Amounts::Fixed { bytes, shape } => Some((bytes, shape)),
            _ => {
                let what =
                    format!("a field of `{list}` has a fixed size; put others into `fields`");
                self.mistakes.at(path, what);
                None
            }
        }
    }

    /// The size of a field with its parts looked up.
    fn size(
        &mut self,
        amounts: Amounts,
        counters: &mut Counters,
        path: &Path,
    ) -> Option<(Size, Shape)> {
        match amounts {
            Amounts::Fixed { bytes, shape } => Some((Size::Fixed(bytes), shape)),
            Amounts::Rest { width } => Some((Size::Rest { width }, Shape::List)),
            Amounts::Counted { by, width } => match counters.register(&by) {
                Ok(by) => Some((Size::Counted { by, width }, Shape::List)),
                Err(what) => {
                    self.mistakes.at(path, what);
                    None
                }
            },
        }
    }

    /// How many bytes a field has, and how it says so.
    fn amounts(&mut self, field: &Field, path: &Path) -> Option<Amounts> {
        let is_sized = matches!(field.kind, Type::Bytes | Type::Text | Type::Pad);
        let (key, given, other) = match is_sized {
            true => ("size", &field.size, field.count.is_some().then_some("count")),
            false => ("count", &field.count, field.size.is_some().then_some("size")),
        };
        let at = |key: &str| path.iter().cloned().chain([key.to_owned()]).collect::<Path>();
        if let Some(other) = other {
            let what = match is_sized {
                true => "a text, `bytes` or `pad` has a `size`, and no `count`",
                false => "a number has its size by its type; for a list give `count`",
            };
            self.mistakes.at(&at(other), what);
        }
        let width = number(field.kind).map_or(1, Number::width);
        match given {
            None if is_sized => {
                self.mistakes.at(path, "a text, `bytes` or `pad` needs a `size`");
                None
            }
            None => Some(Amounts::Fixed { bytes: width, shape: Shape::One }),
            Some(Amount::Named(name)) if name == REST => Some(Amounts::Rest { width }),
            Some(Amount::Named(name)) => Some(Amounts::Counted { by: name.clone(), width }),
            Some(Amount::Fixed(count)) => {
                let bytes = usize::try_from(*count).ok().and_then(|n| n.checked_mul(width));
                match bytes.filter(|bytes| (1..=self.longest).contains(bytes)) {
                    Some(bytes) => {
                        let shape = if is_sized { Shape::One } else { Shape::Fixed(bytes / width) };
                        Some(Amounts::Fixed { bytes, shape })
                    }
                    None => {
                        let longest = self.longest;
                        let what = format!(
                            "expected from 1 to as many as fit into {longest} bytes, which is `max_record`"
                        );
                        self.mistakes.at(&at(key), what);
                        None
                    }
                }
            }
        }
    }

    /// A field with what can be said of it alone.
    fn lay(&mut self, field: &'o Field, path: Path, at: At, shape: Shape) -> Laid<'o> {
        let endian = field.endian.unwrap_or(self.options.endian);
        let word = number(field.kind).map(|number| Word { number, endian });
        let is_text = matches!(field.kind, Type::Bytes | Type::Text | Type::Pad);
        // Bytes and texts are one value, however many bytes that has.
        let shape = if is_text { Shape::One } else { shape };
        let (columns, constant) = (Vec::new(), None);
        let mut laid = Laid { field, path, at, word, shape, columns, constant };
        self.check_scale(&laid);
        laid.constant = self.constant(&laid);
        laid.columns = self.columns(&laid);
        laid
    }

    fn check_scale(&mut self, laid: &Laid<'_>) {
        let Field { scale, offset, role, .. } = laid.field;
        for (key, number) in [("scale", scale), ("offset", offset)] {
            let Some(number) = number else { continue };
            if laid.word.is_none() || !laid.field.bits.is_empty() {
                laid.wrong(self.mistakes, key, format!("only numbers have a `{key}`"));
            } else if role.is_some_and(|role| role != Role::Time) {
                let what =
                    format!("a number that is for something else than a column has no `{key}`");
                laid.wrong(self.mistakes, key, what);
            } else if !number.is_finite() || (key == "scale" && *number == 0.0) {
                laid.wrong(self.mistakes, key, "expected a number that values can be made with");
            }
        }
    }

    fn constant(&mut self, laid: &Laid<'_>) -> Option<Vec<u8>> {
        let value = laid.field.value.as_ref()?;
        let made = match (value, laid.spot()) {
            (_, None) => Err("its place differs from record to record, so it cannot be compared; \
                              put it before fields of changing size, or into `tail`"
                .to_owned()),
            _ if laid.shape != Shape::One => Err("a list has no `value`".to_owned()),
            (Constant::Flag(flag), _) if laid.field.kind == Type::Bool => Ok(vec![u8::from(*flag)]),
            (Constant::Flag(_), _) => Err("only a `bool` is true or false".to_owned()),
            (Constant::Number(number @ (0 | 1)), _) if laid.field.kind == Type::Bool => {
                Ok(vec![u8::from(*number == 1)])
            }
            (_, _) if laid.field.kind == Type::Bool => Err("expected true or false".to_owned()),
            (Constant::Number(number), _) => match laid.word {
                Some(word) if !word.number.is_float() => {
                    let (least, most) = word.number.range();
                    match (least..=most).contains(&i128::from(*number)) {
                        true => Ok(word.bytes(number.cast_unsigned())),
                        false => Err(format!("its type goes from {least} to {most}")),
                    }
                }
                Some(_) => Err("a number with a point is not compared".to_owned()),
                None => Err("expected a text, or bytes such as \"0xb5 62\"".to_owned()),
            },
            (Constant::Bytes(_), _) if laid.word.is_some() => {
                Err("expected a whole number".to_owned())
            }
            (Constant::Bytes(literal), Some((_, len))) if literal.0.len() == len => {
                Ok(literal.0.clone())
            }
            (Constant::Bytes(literal), Some((_, len))) => {
                Err(format!("it has {} bytes, and the field {len}", literal.0.len()))
            }
        };
        made.map_err(|what| laid.wrong(self.mistakes, "value", what)).ok()
    }

    fn columns(&mut self, laid: &Laid<'_>) -> Vec<Column> {
        let field = laid.field;
        let unit = field.unit.clone();
        let column = |name: &str, what, shape| {
            let (name, unit) = (name.to_owned(), unit.clone());
            Column { name, unit, at: laid.at, what, shape }
        };
        let mut columns = Vec::new();
        for (name, bits) in &field.bits {
            match bits_of(laid, *bits) {
                Ok(what) => columns.push(column(name, what, Shape::One)),
                Err(what) => self.wrong_bits(laid, name, what),
            }
        }
        let Some(name) = &field.name else { return columns };
        if name.is_empty() || name == REST {
            laid.wrong(self.mistakes, "name", format!("`{name}` is no name of a field"));
        }
        let scaled = field.scale.is_some() || field.offset.is_some();
        let what = match (field.kind, laid.word) {
            (Type::Pad, _) => {
                laid.wrong(self.mistakes, "name", "what only fills up has no name; use `bytes`");
                return columns;
            }
            (_, Some(word)) if scaled => {
                What::Scaled(word, field.scale.unwrap_or(1.0), field.offset.unwrap_or(0.0))
            }
            (_, Some(word)) => What::Number(word),
            (Type::Bool, _) => What::Bool,
            (Type::Text, _) => What::Text,
            _ => What::Bytes,
        };
        columns.push(column(name, what, laid.shape));
        columns
    }

    fn wrong_bits(&mut self, laid: &Laid<'_>, name: &str, what: String) {
        let path = laid.path.iter().cloned().chain(["bits".to_owned(), name.to_owned()]);
        self.mistakes.at(&path.collect::<Path>(), what);
    }
}

fn bits_of(laid: &Laid<'_>, bits: Bits) -> Result<What, String> {
    let whole = laid.word.filter(|word| !word.number.is_float() && laid.shape == Shape::One);
    let word = whole.ok_or("only a whole number has bits")?;
    let width = 8 * word.number.width() as u32;
    let (low, high) = match bits {
        Bits::One(bit) => (bit, bit),
        Bits::Range(low, high) => (low, high),
    };
    if high >= width {
        return Err(format!("its type has bits 0 to {}", width - 1));
    }
    Ok(match bits {
        Bits::One(bit) => What::Flag(word, bit),
        Bits::Range(..) => What::Bits(word, low, high - low + 1),
    })
}

/// The number that a type is.
pub(super) fn number(kind: Type) -> Option<Number> {
    Some(match kind {
        Type::U8 => Number::U8,
        Type::I8 => Number::I8,
        Type::U16 => Number::U16,
        Type::I16 => Number::I16,
        Type::U24 => Number::U24,
        Type::I24 => Number::I24,
        Type::U32 => Number::U32,
        Type::I32 => Number::I32,
        Type::U64 => Number::U64,
        Type::I64 => Number::I64,
        Type::F32 => Number::F32,
        Type::F64 => Number::F64,
        Type::Bool | Type::Bytes | Type::Text | Type::Pad => return None,
    })
}

/// Goes along fields and notes where each lies.
struct Strider {
    /// Where the next field lies, as long as that is always the same.
    at: Option<usize>,
    /// The fewest bytes of the fields so far.
    len: usize,
    walk: Walk,
    /// The field that takes all that is left.
    rest: Option<usize>,
}

impl Strider {
    fn place(&self, size: Size) -> At {
        match (self.at, size) {
            (Some(at), Size::Fixed(len)) => At::Spot(Spot::Start(at), len),
            _ => At::Step(self.walk.steps.len()),
        }
    }

    fn stride(&mut self, size: Size, number: usize) {
        self.walk.steps.push(Step { size, keeps: None });
        match size {
            Size::Fixed(len) => {
                self.at = self.at.map(|at| at.saturating_add(len));
                self.len = self.len.saturating_add(len);
            }
            Size::Rest { .. } => (self.at, self.rest) = (None, Some(number)),
            Size::Counted { .. } => self.at = None,
        }
    }

    fn finish(mut self, counters: Counters) -> Body {
        if self.at.is_some() {
            return Body::Fixed(self.len);
        }
        for counter in counters.used() {
            match counter.place {
                CounterAt::Head(at) => self.walk.given.push((at, counter.word, counter.register)),
                CounterAt::Step(step) => {
                    if let Some(step) = self.walk.steps.get_mut(step) {
                        step.keeps = Some((counter.word, counter.register));
                    }
                }
            }
        }
        Body::Walked { walk: self.walk, least: self.len, has_rest: self.rest.is_some() }
    }
}

/// Fields that may say how long others are, by name.
struct Counters {
    known: BTreeMap<String, Result<(CounterAt, Word), String>>,
    /// Those that do, in the order of their registers.
    used: Vec<String>,
}

#[derive(Clone, Copy)]
enum CounterAt {
    Head(usize),
    Step(usize),
}

struct Counter {
    place: CounterAt,
    word: Word,
    register: usize,
}

impl Counters {
    fn of(head: &[Laid<'_>]) -> Self {
        let mut counters = Self { known: BTreeMap::new(), used: Vec::new() };
        for laid in head {
            if let At::Spot(Spot::Start(at), _) = laid.at {
                counters.know(laid, CounterAt::Head(at));
            }
        }
        counters
    }

    fn add(&mut self, laid: &Laid<'_>, step: usize) {
        self.know(laid, CounterAt::Step(step));
    }

    fn know(&mut self, laid: &Laid<'_>, place: CounterAt) {
        let Some(name) = &laid.field.name else { return };
        let fits = |word: &Word| !word.number.is_signed() && laid.shape == Shape::One;
        let scaled = laid.field.scale.is_some() || laid.field.offset.is_some();
        let counter = match laid.word.filter(fits) {
            Some(word) if !scaled => Ok((place, word)),
            _ => Err(format!(
                "`{name}` says no size: expected u8, u16, u24, u32 or u64, without a scale"
            )),
        };
        self.known.insert(name.clone(), counter);
    }

    /// The register of the field of that name.
    fn register(&mut self, name: &str) -> Result<usize, String> {
        match self.known.get(name) {
            None => return Err(format!("no field in front of it is called `{name}`")),
            Some(Err(what)) => return Err(what.clone()),
            Some(Ok(_)) => {}
        }
        if let Some(register) = self.used.iter().position(|used| used == name) {
            return Ok(register);
        }
        if self.used.len() == MOST_REGISTERS {
            return Err(format!("more than {MOST_REGISTERS} fields say how long others are"));
        }
        self.used.push(name.to_owned());
        Ok(self.used.len() - 1)
    }

    fn used(&self) -> impl Iterator<Item = Counter> {
        self.used.iter().enumerate().filter_map(|(register, name)| {
            let (place, word) = self.known.get(name)?.as_ref().ok().copied()?;
            Some(Counter { place, word, register })
        })
    }
}
