//! Tables of a SQLite file: trees whose branches lead to leaves with rows, in the order of their
//! ids.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_model::Error;

use super::pages::{HEADER, PageSet, Pages, u16_at, u32_at};
use super::record::varint;

/// A page of a tree.
pub(crate) struct Node<'p> {
    page: &'p [u8],
    /// Where its own header begins: behind that of the file on the first page.
    head: usize,
    is_leaf: bool,
    entries: usize,
}

/// A row, as far as it lies on its leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'p> {
    /// Where it begins on the page, and the length of what precedes its bytes.
    pub(crate) at: usize,
    head: usize,
    pub(crate) id: i64,
    /// The length of the row, and what of it is on the page.
    pub(crate) len: u64,
    pub(crate) start: &'p [u8],
    /// The page on which it goes on.
    overflow: Option<u32>,
}

impl<'p> Node<'p> {
    /// `None` unless this page, of that number, is one of a tree of rows. A branch has to be whole,
    /// as an entry more or less moves what is below the others.
    pub(crate) fn parse(page: &'p [u8], number: u32) -> Option<Self> {
        let head = if number == 1 { HEADER } else { 0 };
        let is_leaf = match page.get(head)? {
            0x0d => true,
            0x05 => false,
            _ => return None,
        };
        let entries = usize::from(u16_at(page, head + 3)?);
        let node = Self { page, head, is_leaf, entries };
        (node.pointer(entries) <= page.len() && (is_leaf || node.is_whole())).then_some(node)
    }

    /// Whether entries and gaps take exactly the bytes that they should: then none is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.len_of_content().is_some_and(|(expected, found)| expected == found)
    }

    /// The bytes from the first entry to the end of the page, and those of entries and gaps.
    fn len_of_content(&self) -> Option<(usize, usize)> {
        let start = match u16_at(self.page, self.head + 5)? {
            0 => 1 << 16,
            start => usize::from(start),
        };
        let mut found = usize::from(*self.page.get(self.head + 7)?);
        for entry in 0..self.entries {
            found += self.entry_len(entry)?;
        }
        let mut gap = usize::from(u16_at(self.page, self.head + 1)?);
        while gap > 0 && found <= self.page.len() {
            found += usize::from(u16_at(self.page, gap + 2)?.max(4));
            gap = usize::from(u16_at(self.page, gap)?);
        }
        Some((self.page.len().checked_sub(start)?, found))
    }

    /// The bytes that an entry takes.
    fn entry_len(&self, entry: usize) -> Option<usize> {
        if self.is_leaf {
            let row = self.row(entry)?;
            let len = row.head + row.start.len() + if row.overflow.is_some() { 4 } else { 0 };
            return Some(len.max(4));
        }
        let (_, len) = varint(self.page.get(self.place(entry)? + 4..)?)?;
        Some(4 + len)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Where the place of an entry stands; behind the last one for their number.
    fn pointer(&self, entry: usize) -> usize {
        self.head + if self.is_leaf { 8 } else { 12 } + 2 * entry
    }

    /// Where an entry begins.
    fn place(&self, entry: usize) -> Option<usize> {
        let place = usize::from(u16_at(self.page, self.pointer(entry))?);
        (entry < self.entries && place >= self.pointer(self.entries)).then_some(place)
    }

    /// The pages below a branch, each with the highest id below it. That below the last entry has
    /// what is left, up to `last`. `None` stands for an entry that is none.
    fn children(&self, last: i64) -> Vec<Option<(u32, i64)>> {
        let child = |entry| {
            let place = self.place(entry)?;
            let (id, _) = varint(self.page.get(place + 4..)?)?;
            Some((u32_at(self.page, place)?, id as i64))
        };
        let right = u32_at(self.page, self.head + 8).map(|page| (page, last));
        (0..self.entries).map(child).chain([right]).collect()
    }

    /// A row of a leaf; `None` if the entry is none.
    pub(crate) fn row(&self, entry: usize) -> Option<Row<'p>> {
        let at = self.place(entry)?;
        let (len, read) = varint(self.page.get(at..)?)?;
        let (id, also_read) = varint(self.page.get(at + read..)?)?;
        let head = read + also_read;
        let from = at + head;
        let local = local_len(len, self.page.len());
        let start = self.page.get(from..from + local)?;
        let overflow = match (local as u64) < len {
            true => Some(u32_at(self.page, from + local)?),
            false => None,
        };
        Some(Row { at, head, id: id as i64, len, start, overflow })
    }

    /// The first and the last id of a leaf, if it is one that has such rows only, in order.
    fn ids(&self, is_row: impl Fn(&Row<'_>) -> bool) -> Option<(i64, i64)> {
        let mut ids: Option<(i64, i64)> = None;
        if !self.is_leaf || !self.is_whole() {
            return None;
        }
        for entry in 0..self.entries {
            let row = self.row(entry).filter(|row| is_row(row))?;
            if ids.is_some_and(|(_, last)| row.id <= last) {
                return None;
            }
            ids = Some((ids.map_or(row.id, |(first, _)| first), row.id));
        }
        ids
    }
}

/// How much of a row is on its leaf, if pages have `usable` bytes.
fn local_len(len: u64, usable: usize) -> usize {
    let most = usable - 35;
    if len <= most as u64 {
        return len as usize;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let filling = least + ((len - least as u64) % (usable as u64 - 4)) as usize;
    if filling <= most { filling } else { least }
}

impl Row<'_> {
    /// Whether it goes on on other pages.
    pub(crate) fn is_long(&self) -> bool {
        self.overflow.is_some()
    }

    /// The number of pages on which it goes on.
    pub(crate) fn overflow_pages(&self, pages: &Pages) -> u64 {
        (self.len - self.start.len() as u64).div_ceil(pages.usable() as u64 - 4)
    }

    /// Appends the bytes of the row in this range to `out`. `take` is asked for each page on which
    /// the row goes on, and tells whether it may have it. `Ok(Err)` says why there are none.
    pub(crate) fn read(
        &self,
        pages: &mut Pages,
        range: Range<u64>,
        mut take: impl FnMut(u32) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), String>, Error> {
        append(self.start, 0, &range, out);
        let (mut at, mut next) = (self.start.len() as u64, self.overflow.unwrap_or_default());
        while at < range.end {
            let Some(page) = pages.page(next)? else {
                return Ok(Err(format!("it goes on at page {next}, which the file does not have")));
            };
            if !take(next) {
                return Ok(Err(format!("it goes on at page {next}, which is of others")));
            }
            let (from, content) = (next, page.get(4..).unwrap_or_default());
            let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
            let content = content.get(..left).unwrap_or(content);
            append(content, at, &range, out);
            at += content.len() as u64;
            next = u32_at(page, 0).unwrap_or_default();
            if (at == self.len) != (next == 0) {
                return Ok(Err(format!("its pages do not end with it, but at page {from}")));
            }
        }
        Ok(Ok(()))
    }
}

/// Appends what `bytes`, which begin at `at`, have of a range.
fn append(bytes: &[u8], at: u64, range: &Range<u64>, out: &mut Vec<u8>) {
    let within = |place: u64| place.saturating_sub(at).min(bytes.len() as u64) as usize;
    out.extend_from_slice(bytes.get(within(range.start)..within(range.end)).unwrap_or_default());
}

/// A leaf with the rows up to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) page: u32,
    pub(crate) last: i64,
}

/// The leaves of a table in the order of their rows, and what is wrong with its branches.
#[derive(Debug)]
pub(crate) struct Leaves {
    pub(crate) found: Vec<Leaf>,
    pub(crate) faults: Vec<PageFault>,
    /// How many pages branches lead to that are behind the end of the file.
    pub(crate) cut_off: u64,
    /// The rows to which no branch leads: those behind the first id, up to the second one.
    lost: Vec<(i64, i64)>,
    /// The pages of the table.
    pub(crate) seen: PageSet,
}

/// What is wrong with a page.
#[derive(Debug)]
pub(crate) struct PageFault {
    pub(crate) page: u32,
    pub(crate) what: &'static str,
}

/// Of a page that should lead to others, or have rows.
pub(crate) const DAMAGED: &str = "a page of tables is damaged";

impl Leaves {
    /// Finds the leaves of the table with this root. Of each branch, pages below it are looked at
    /// up to the first one that is whole: the others are of the same kind.
    pub(crate) fn find(pages: &mut Pages, root: u32) -> Result<Self, Error> {
        let (found, faults, lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut leaves = Self { found, faults, cut_off: 0, lost, seen: PageSet::default() };
        leaves.seen.insert(root);
        let mut left = vec![(root, i64::MIN, i64::MAX)];
        while let Some((number, after, last)) = left.pop() {
            if pages.is_cancelled() {
                break;
            }
            let node = pages.page(number)?.and_then(|page| Node::parse(page, number));
            // A branch whose kind is damaged is a leaf that is not whole.
            let Some(node) = node.filter(Node::is_whole) else {
                leaves.note(number);
                leaves.lose(after, last);
                continue;
            };
            if node.is_leaf() {
                leaves.found.push(Leaf { page: number, last });
                continue;
            }
            let children = node.children(last);
            let below = leaves.below(pages, number, (after, last), children);
            if has_leaves(pages, &below)? {
                leaves.found.extend(below.into_iter().map(|(page, _, last)| Leaf { page, last }));
            } else {
                left.extend(below.into_iter().rev());
            }
        }
        Ok(leaves)
    }

    /// The pages below a branch that there are, each with the ids between which its rows are.
    fn below(
        &mut self,
        pages: &Pages,
        branch: u32,
        (mut after, last): (i64, i64),
        children: Vec<Option<(u32, i64)>>,
    ) -> Vec<(u32, i64, i64)> {
        let mut below = Vec::new();
        let mut is_lost = false;
        for child in children {
            let Some((page, id)) = child.filter(|(_, id)| (after..=last).contains(id)) else {
                self.note(branch);
                is_lost = true;
                continue;
            };
            let is_there = pages.has(page) && self.seen.insert(page);
            if page > 0 && !pages.has(page) {
                self.cut_off += 1;
            } else if !is_there {
                self.note(branch);
            }
            match is_there && !is_lost {
                true => below.push((page, after, id)),
                // Which of the rows are below a page is unknown if the entry before is damaged.
                false => self.lose(after, id),
            }
            (after, is_lost) = (id, false);
        }
        if is_lost {
            self.lose(after, last);
        }
        below
    }

    fn lose(&mut self, after: i64, last: i64) {
        match self.lost.last_mut() {
            Some((_, upto)) if *upto == after => *upto = last,
            _ => self.lost.push((after, last)),
        }
    }

    /// Looks for leaves with rows that no branch leads to, on all pages. Pages that are free are
    /// left out: they have rows that were removed.
    pub(crate) fn recover(
        &mut self,
        pages: &mut Pages,
        is_row: impl Fn(&Row<'_>) -> bool,
    ) -> Result<(), Error> {
        if self.lost.is_empty() {
            return Ok(());
        }
        self.lost.sort_unstable();
        let free = self.free_pages(pages)?;
        let mut found = Vec::new();
        for number in pages.all() {
            if pages.is_cancelled() {
                break;
            }
            if self.seen.contains(number) || free.contains(number) {
                continue;
            }
            let node = pages.page(number)?.and_then(|page| Node::parse(page, number));
            let Some((first, last)) = node.and_then(|node| node.ids(&is_row)) else { continue };
            let before = self.lost.partition_point(|(after, _)| *after < first);
            let range = before.checked_sub(1).and_then(|at| self.lost.get(at));
            if range.is_some_and(|(_, upto)| last <= *upto) {
                found.push((first, Leaf { page: number, last }));
            }
        }
        found.sort_unstable_by_key(|(first, leaf)| (*first, leaf.page));
        // Of two pages with the same rows, one is of an earlier state.
        let mut read_to = i64::MIN;
        found.retain(|(first, leaf)| {
            let is_new = *first > read_to;
            read_to = read_to.max(leaf.last);
            is_new
        });
        self.found.extend(found.into_iter().map(|(_, leaf)| leaf));
        self.found.sort_by_key(|leaf| leaf.last);
        Ok(())
    }

    /// The pages that are free: those of a list, and those on which it stands.
    fn free_pages(&mut self, pages: &mut Pages) -> Result<PageSet, Error> {
        let (mut free, mut count) = (PageSet::default(), 0);
        let (first, expected) = pages.free();
        let mut next = first;
        while next > 0 && free.insert(next) {
            let Some(page) = pages.page(next)? else { break };
            let listed = u32_at(page, 4).unwrap_or_default();
            let numbers = page.get(8..).unwrap_or_default().as_chunks().0.iter();
            let numbers = numbers.take(listed as usize).map(|number| u32::from_be_bytes(*number));
            let numbers: Vec<u32> = numbers.collect();
            next = u32_at(page, 0).unwrap_or_default();
            // Of hostile numbers, each may take as much memory as a part of the set.
            for number in numbers.into_iter().filter(|number| pages.has(*number)) {
                free.insert(number);
            }
            count += 1 + u64::from(listed);
        }
        if count != u64::from(expected) {
            let what = "the list of free pages is damaged: removed messages may have come back";
            self.faults.push(PageFault { page: first.max(1), what });
        }
        Ok(free)
    }

    fn note(&mut self, page: u32) {
        if self.faults.last().is_none_or(|fault| fault.page != page) {
            self.faults.push(PageFault { page, what: DAMAGED });
        }
    }
}

/// Whether the first of these pages that is whole is a leaf, or none is.
fn has_leaves(pages: &mut Pages, below: &[(u32, i64, i64)]) -> Result<bool, Error> {
    for (number, ..) in below {
        let node = pages.page(*number)?.and_then(|page| Node::parse(page, *number));
        if let Some(node) = node.filter(Node::is_whole) {
            return Ok(node.is_leaf());
        }
    }
    Ok(true)
}
