//! The tree of a BLAKE3 hash, made of pieces of the input in any order.

use std::collections::BTreeMap;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{CHUNK_LEN, Hash, Hasher};

/// The length of a chunk, a leaf of the tree.
const CHUNK: u64 = CHUNK_LEN as u64;

/// What has been hashed of an input: its whole chunks, joined as far as they are neighbours, and
/// the parts of others.
#[derive(Debug)]
pub(super) struct HashTree {
    /// The length of the input in bytes.
    len: u64,
    /// By the number of the first chunk.
    subtrees: BTreeMap<u64, Subtree>,
    /// Chunks that are not complete yet, by their numbers.
    partial: BTreeMap<u64, PartialChunk>,
}

#[derive(Clone, Copy, Debug)]
struct Subtree {
    chunks: u64,
    value: ChainingValue,
}

#[derive(Debug)]
struct PartialChunk {
    bytes: Box<[u8; CHUNK_LEN]>,
    filled: usize,
}

/// A piece of an input, hashed as far as it can be without its neighbours.
#[derive(Debug)]
pub(super) struct HashedPiece<'b> {
    subtrees: Vec<(u64, Subtree)>,
    /// Parts of chunks, by their position.
    parts: Vec<(u64, &'b [u8])>,
}

impl<'b> HashedPiece<'b> {
    /// Hashes `bytes` at a position.
    pub(super) fn new(at: u64, bytes: &'b [u8]) -> Self {
        let mut piece = Self { subtrees: Vec::new(), parts: Vec::new() };
        let before = (at.next_multiple_of(CHUNK) - at).min(bytes.len() as u64) as usize;
        let (head, rest) = bytes.split_at(before);
        let (whole, tail) = rest.split_at(rest.len() / CHUNK_LEN * CHUNK_LEN);
        let mut chunk = (at + before as u64) / CHUNK;
        let mut left = whole;
        while !left.is_empty() {
            let aligned = chunk.trailing_zeros().min(usize::BITS - 1);
            let fitting = (left.len() / CHUNK_LEN).ilog2();
            let chunks = 1 << aligned.min(fitting);
            let (bytes, rest) = left.split_at(chunks * CHUNK_LEN);
            piece.subtrees.push((chunk, Subtree::new(chunk, bytes)));
            chunk += chunks as u64;
            left = rest;
        }
        for (at, part) in [(at, head), (chunk * CHUNK, tail)] {
            if !part.is_empty() {
                piece.parts.push((at, part));
            }
        }
        piece
    }
}

impl Subtree {
    /// Hashes the bytes that begin with this chunk.
    fn new(chunk: u64, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(chunk * CHUNK).update(bytes);
        let chunks = (bytes.len() as u64).div_ceil(CHUNK);
        Self { chunks, value: hasher.finalize_non_root() }
    }
}

impl HashTree {
    pub(super) fn new(len: u64) -> Self {
        Self { len, subtrees: BTreeMap::new(), partial: BTreeMap::new() }
    }

    /// The number of parts held.
    pub(super) fn parts(&self) -> usize {
        self.subtrees.len() + self.partial.len()
    }

    /// Adds a piece. No byte of an input may be added twice.
    pub(super) fn add(&mut self, piece: HashedPiece<'_>) {
        for (chunk, subtree) in piece.subtrees {
            self.add_subtree(chunk, subtree);
        }
        for (at, bytes) in piece.parts {
            self.add_part(at, bytes);
        }
    }

    fn chunks(&self) -> u64 {
        self.len.div_ceil(CHUNK)
    }

    fn add_part(&mut self, at: u64, bytes: &[u8]) {
        let (chunk, from) = (at / CHUNK, (at % CHUNK) as usize);
        let whole = (self.len - chunk * CHUNK).min(CHUNK) as usize;
        let partial = self.partial.entry(chunk).or_insert_with(PartialChunk::empty);
        if let Some(to) = partial.bytes.get_mut(from..from + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        partial.filled += bytes.len();
        if partial.filled >= whole
            && let Some(PartialChunk { bytes, .. }) = self.partial.remove(&chunk)
        {
            let bytes = bytes.get(..whole).unwrap_or_default();
            self.add_subtree(chunk, Subtree::new(chunk, bytes));
        }
    }

    /// Adds a subtree, joined with its neighbour as often as possible. The root is left out: it is
    /// another function of its children.
    fn add_subtree(&mut self, mut chunk: u64, mut subtree: Subtree) {
        while subtree.chunks * 2 < self.chunks() {
            let other = chunk ^ subtree.chunks;
            let is_equal = |other: &Subtree| other.chunks == subtree.chunks;
            if !self.subtrees.get(&other).is_some_and(is_equal) {
                break;
            }
            let Some(other_tree) = self.subtrees.remove(&other) else { break };
            let (left, right) = if other < chunk {
                (other_tree.value, subtree.value)
            } else {
                (subtree.value, other_tree.value)
            };
            chunk = chunk.min(other);
            let value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            subtree = Subtree { chunks: subtree.chunks * 2, value };
        }
        self.subtrees.insert(chunk, subtree);
    }

    /// The hash of the input; `None` if a byte is missing, or if it is a single chunk.
    pub(super) fn finish(&self) -> Option<Hash> {
        let chunks = self.chunks();
        let left = left_chunks(chunks)?;
        let (left, right) = (self.value(0, left)?, self.value(left, chunks - left)?);
        Some(merge_subtrees_root(&left, &right, Mode::Hash))
    }

    /// The value of the subtree of these chunks.
    fn value(&self, first: u64, chunks: u64) -> Option<ChainingValue> {
        if let Some(subtree) = self.subtrees.get(&first).filter(|tree| tree.chunks == chunks) {
            return Some(subtree.value);
        }
        let left = left_chunks(chunks)?;
        let (left, right) = (self.value(first, left)?, self.value(first + left, chunks - left)?);
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }
}

/// How many of these chunks are below the left child of their common parent; `None` for one.
fn left_chunks(chunks: u64) -> Option<u64> {
    let most = chunks.checked_sub(1).filter(|most| *most > 0)?;
    Some(1 << most.ilog2())
}

impl PartialChunk {
    fn empty() -> Self {
        Self { bytes: Box::new([0; CHUNK_LEN]), filled: 0 }
    }
}
