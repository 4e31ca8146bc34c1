//! Types and messages made up from a number, with a separate writer of the wire format to check
//! the codec against.

use std::fmt::Write;

/// A small generator of numbers that look random; the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MemberType {
    Number(&'static str, usize),
    Text,
    Boolean,
    Enum,
    Struct(usize),
}

#[derive(Clone, Copy, Debug)]
enum ArraySize {
    Fixed(usize),
    Counted(usize),
}

#[derive(Debug)]
struct RandomMember {
    of: MemberType,
    sizes: Vec<ArraySize>,
}

impl RandomMember {
    /// How many bytes it takes at most, if structs take so many.
    fn longest(&self, structs: &[usize]) -> usize {
        let one = match self.of {
            MemberType::Struct(at) => structs[at],
            _ => 16,
        };
        let each = self.sizes.iter().map(|size| match size {
            ArraySize::Fixed(count) => *count,
            ArraySize::Counted(_) => 3,
        });
        one * each.product::<usize>()
    }
}

/// Structs, each of which holds only those before it; the last is the message.
#[derive(Debug)]
pub(crate) struct RandomTypes(Vec<Vec<RandomMember>>);

const NUMBERS: [(&str, usize); 7] = [
    ("int8_t", 1),
    ("int16_t", 2),
    ("int32_t", 4),
    ("int64_t", 8),
    ("byte", 1),
    ("float", 4),
    ("double", 8),
];

impl RandomTypes {
    pub(crate) fn random(random: &mut Random) -> Self {
        let (mut structs, mut longest) = (Vec::new(), Vec::new());
        for at in 0..1 + random.below(4) {
            // Arrays of arrays of structs of arrays would make messages of gigabytes.
            let (members, most) = loop {
                let members = members(at, random);
                let most: usize = members.iter().map(|member| member.longest(&longest)).sum();
                if most <= 1 << 16 {
                    break (members, most);
                }
            };
            structs.push(members);
            longest.push(most);
        }
        Self(structs)
    }

    /// The name of the message's type.
    pub(crate) fn name(&self) -> String {
        format!("made.t{}", self.0.len() - 1)
    }

    /// The types as a file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("package made;\nenum kind { A, B = 7, C }\n");
        for (at, members) in self.0.iter().enumerate() {
            writeln!(text, "struct t{at} {{").unwrap();
            for (place, RandomMember { of, sizes }) in members.iter().enumerate() {
                let of = match of {
                    MemberType::Number(name, _) => (*name).to_owned(),
                    MemberType::Text => "string".to_owned(),
                    MemberType::Boolean => "boolean".to_owned(),
                    MemberType::Enum => "kind".to_owned(),
                    MemberType::Struct(at) => format!("t{at}"),
                };
                let sizes: String = sizes
                    .iter()
                    .map(|size| match size {
                        ArraySize::Fixed(n) => format!("[{n}]"),
                        ArraySize::Counted(place) => format!("[m{place}]"),
                    })
                    .collect();
                writeln!(text, "    {of} m{place}{sizes};").unwrap();
            }
            text += "}\n";
        }
        text
    }

    /// A message's body, without the fingerprint.
    pub(crate) fn body(&self, random: &mut Random) -> Vec<u8> {
        let mut out = Vec::new();
        self.value(self.0.len() - 1, random, &mut out);
        out
    }

    fn value(&self, at: usize, random: &mut Random, out: &mut Vec<u8>) {
        let members = &self.0[at];
        // Arrays of many empty arrays are considered hostile, so only arrays of one dimension are
        // empty.
        let is_inner = |place| {
            let inner = members.iter().filter(|member| member.sizes.len() > 1);
            let mut sizes = inner.flat_map(|member| &member.sizes);
            sizes.any(|size| matches!(size, ArraySize::Counted(p) if *p == place))
        };
        let count = |place| random.below(4).max(usize::from(is_inner(place)));
        let counts: Vec<usize> = (0..members.len()).map(count).collect();
        let is_count = |place| {
            let sizes = members.iter().flat_map(|member| &member.sizes);
            sizes.into_iter().any(|size| matches!(size, ArraySize::Counted(p) if *p == place))
        };
        for (place, RandomMember { of, sizes }) in members.iter().enumerate() {
            if let (MemberType::Number(_, width), true) = (of, is_count(place)) {
                out.extend_from_slice(&(counts[place] as u64).to_be_bytes()[8 - width..]);
                continue;
            }
            let each = sizes.iter().map(|size| match size {
                ArraySize::Fixed(n) => *n,
                ArraySize::Counted(place) => counts[*place],
            });
            for _ in 0..each.product() {
                self.element(*of, random, out);
            }
        }
    }

    fn element(&self, of: MemberType, random: &mut Random, out: &mut Vec<u8>) {
        match of {
            MemberType::Number(_, width) => {
                out.extend_from_slice(&random.next().to_be_bytes()[..width])
            }
            MemberType::Boolean => out.push(random.below(2) as u8),
            MemberType::Enum => out.extend_from_slice(&(random.next() as u32).to_be_bytes()),
            MemberType::Struct(at) => self.value(at, random, out),
            MemberType::Text => {
                let texts: [&[u8]; 7] = [
                    b"",
                    b"plain",
                    "größe →".as_bytes(),
                    b"\xff\xfe",
                    b"\\xff",
                    b"a\0b",
                    b"C:\\x41",
                ];
                let text = texts[random.below(texts.len())];
                out.extend_from_slice(&(text.len() as u32 + 1).to_be_bytes());
                out.extend_from_slice(text);
                out.push(0);
            }
        }
    }
}

fn members(at: usize, random: &mut Random) -> Vec<RandomMember> {
    let mut members: Vec<RandomMember> = Vec::new();
    for _ in 0..random.below(7) {
        let of = match random.below(12) {
            0..7 => {
                let (name, width) = NUMBERS[random.below(NUMBERS.len())];
                MemberType::Number(name, width)
            }
            7 => MemberType::Text,
            8 => MemberType::Boolean,
            9 => MemberType::Enum,
            _ if at > 0 => MemberType::Struct(random.below(at)),
            _ => MemberType::Number("int32_t", 4),
        };
        let counters: Vec<usize> = (0..members.len())
            .filter(|place| {
                let member: &RandomMember = &members[*place];
                let counts =
                    matches!(member.of, MemberType::Number(name, _) if name.starts_with("int"));
                counts && member.sizes.is_empty()
            })
            .collect();
        let dimensions = [0, 0, 0, 1, 1, 2, 3][random.below(7)];
        let size = |_| match counters.as_slice() {
            [] => ArraySize::Fixed(1 + random.below(3)),
            counters if random.below(2) == 0 => {
                ArraySize::Counted(counters[random.below(counters.len())])
            }
            _ => ArraySize::Fixed([1, 2, 3, 5, 40][random.below(5)]),
        };
        members.push(RandomMember { of, sizes: (0..dimensions).map(size).collect() });
    }
    members
}
