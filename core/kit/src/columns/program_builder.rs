//! Builds programs: lays out regions of adjacent members, and counts the fewest bytes of a row.
//! Knows nothing of columns.

use super::WireRules;
use super::plan::{Count, Leaf, Op, Program, Region};

/// Most zero-byte elements that fixed arrays may have; each takes memory.
const MAX_EMPTY_ELEMENTS: usize = 256;
/// A log cannot hold longer payloads.
const MAX_PAYLOAD_LEN: usize = i32::MAX as usize;

/// Builds a program; collects adjacent fixed-size members in the open region.
pub(super) struct ProgramBuilder {
    rules: WireRules,
    program: Program,
    pub(super) open: Region,
    /// What the start of the open region is known to be a multiple of, if not 0.
    pub(super) aligned: usize,
}

impl ProgramBuilder {
    /// A program whose rows start at a multiple of `aligned`.
    pub(super) fn new(rules: WireRules, aligned: usize) -> Self {
        Self { rules, program: Program::default(), open: Region::default(), aligned }
    }

    /// The program, when all of its members are added. `regions` counts those of the plan.
    pub(super) fn finish(mut self, regions: &mut usize) -> Program {
        self.close(regions);
        self.program
    }

    /// Adds padding up to a multiple of `alignment`: to the open region if it is known how much.
    pub(super) fn align(&mut self, alignment: usize, regions: &mut usize) {
        if alignment <= 1 {
            return;
        }
        if self.aligned < alignment {
            self.close(regions);
            self.program.ops.push(Op::Align(alignment));
            self.aligned = alignment;
            return;
        }
        let padded = self.open.size.next_multiple_of(alignment);
        if padded > self.open.size {
            self.open.padding.push(self.open.size..padded);
            self.open.size = padded;
        }
    }

    /// Adds a step, behind the open region.
    pub(super) fn push(&mut self, op: Op, regions: &mut usize) {
        let prefix = match &op {
            Op::Text { .. } => Some(Count::Prefix),
            Op::Bytes { count, .. } | Op::Numbers { count, .. } | Op::List { count, .. } => {
                Some(*count)
            }
            _ => None,
        };
        if prefix == Some(Count::Prefix) {
            let width = self.rules.lengths.width();
            self.align(self.rules.alignment_of(width), regions);
        }
        self.close(regions);
        self.aligned = 1;
        let prefix = self.rules.lengths.width();
        self.program.min_len += match &op {
            Op::Text { .. } => prefix + self.rules.text_end(),
            Op::Bytes { count, .. } | Op::Numbers { count, .. } | Op::List { count, .. } => {
                match *count {
                    Count::Prefix => prefix,
                    Count::Fixed(count) => count,
                    Count::Register(_) | Count::Rest(_) => 0,
                }
            }
            Op::Repeat { count, item } => count.saturating_mul(item.min_len),
            Op::Variant(_) | Op::Opaque { .. } => 1,
            Op::Region(region) => region.size,
            Op::Align(_) | Op::Part => 0,
        };
        if let Op::Repeat { count, item } = &op
            && item.min_len == 0
        {
            let more = count.saturating_mul(item.empty_elements + 1);
            self.program.empty_elements =
                self.program.empty_elements.saturating_add(more).min(MAX_EMPTY_ELEMENTS);
        }
        self.program.ops.push(op);
    }

    fn close(&mut self, regions: &mut usize) {
        if self.open.size > 0 {
            let mut region = std::mem::take(&mut self.open);
            region.id = *regions;
            *regions += 1;
            self.program.min_len += region.size;
            self.program.ops.push(Op::Region(region));
        }
    }

    /// Adds bytes to the open region, and returns where they are.
    pub(super) fn extend(&mut self, width: usize, count: usize) -> Result<usize, String> {
        let offset = self.open.size;
        self.open.size = checked_add(offset, checked_mul(width, count)?)?;
        Ok(offset)
    }

    /// Adds `count` adjacent copies of a region to the open one.
    pub(super) fn inline(&mut self, count: usize, region: &Region) -> Result<(), String> {
        let starts: Vec<usize> = (0..count).map(|n| self.open.size + n * region.size).collect();
        let moved = |places: &[usize]| -> Vec<usize> {
            starts.iter().flat_map(|start| places.iter().map(move |at| start + at)).collect()
        };
        let leaves = region.leaves.iter();
        self.open
            .leaves
            .extend(leaves.map(|leaf| Leaf { offsets: moved(&leaf.offsets), ..leaf.clone() }));
        let booleans = starts.iter().flat_map(|start| {
            region.booleans.iter().map(move |at| start + at.start..start + at.end)
        });
        self.open.booleans.extend(booleans);
        let padding = starts.iter().flat_map(|start| {
            region.padding.iter().map(move |at| start + at.start..start + at.end)
        });
        self.open.padding.extend(padding);
        self.open.size = checked_add(self.open.size, count * region.size)?;
        Ok(())
    }
}

pub(super) fn checked_mul(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).filter(|n| *n <= MAX_PAYLOAD_LEN).ok_or_else(too_long)
}

fn checked_add(size: usize, by: usize) -> Result<usize, String> {
    size.checked_add(by).filter(|n| *n <= MAX_PAYLOAD_LEN).ok_or_else(too_long)
}

fn too_long() -> String {
    "messages are longer than 2 GiB".to_owned()
}
