//! An index over ascending keys that finds a key's position without reading the keys. It stores
//! fixed-size parts of the keys (*heads*) in layers, like the key slices of Masstree.
//!
//! A *head* is seven bytes of a key and the number of its remaining bytes (8 stands for more than
//! seven), as one number. Heads order exactly as keys do. Unlike bare bytes they tie in only two
//! cases: both keys end here, and are equal, or both continue.
//!
//! ```text
//! keys                  top layer, prefix "/"       a layer below
//! 0  /bin/cat           [bin/cat 7] -> key 0
//! 1  /usr/bin/cargo     [usr/bin 8] -> layer  ---> [/cargo  6] -> key 1
//! 2  /usr/bin/carrier                              [/carrie 8] -> key 2
//! 3  /usr/lib           [usr/lib 7] -> key 3
//! ```
//!
//! Keys with equal heads that continue get a separate layer over their next bytes, after their
//! common prefix. A layer without equal heads needs neither prefix nor targets. So random keys cost
//! one binary search in one dense array of 8 bytes per key. Paths, most of which have equal first
//! bytes, cost about one such search per directory. A full key is read at most once, and only if a
//! search ends at the head of a single key that continues.
//!
//! Immutable; shared freely between threads. Not here: sequence numbers of equal keys (the table
//! index), ends of ranges.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

use crate::prefetch_slice;

/// Number of key bytes in a head.
const BYTES: usize = 7;
/// The length field of a head whose key has more than [`BYTES`] left.
const GOES_ON: u64 = 8;
/// Marks a target that is a layer, not a key.
const LAYER: u32 = 1 << 31;
/// Value of [`Layer::targets`] for a layer whose heads each represent one key, in order.
const DENSE: u32 = u32::MAX;

/// The positions of keys among ascending keys that the caller holds.
#[derive(Clone, Debug, Default)]
pub struct LayeredHeads {
    /// The first layer that every lookup searches. It is stored inline because most lookups need no
    /// other.
    top: Layer,
    below: Box<[Layer]>,
    /// The heads of each layer, contiguous; within a layer they ascend and differ.
    heads: Box<[u64]>,
    /// For each head of the layers that have targets: a key's number, or [`LAYER`] and a number in
    /// `below`.
    targets: Box<[u32]>,
    prefixes: Box<[u8]>,
}

/// One layer: the keys `first..end`, which have the same bytes before it.
#[derive(Clone, Copy, Debug, Default)]
struct Layer {
    first: u32,
    end: u32,
    heads: u32,
    heads_end: u32,
    targets: u32,
    prefix: u32,
    prefix_end: u32,
}

impl LayeredHeads {
    /// Maximum number of keys.
    pub const KEYS_MAX: usize = (1 << 31) - 1;

    /// Heads over the keys `key(0)` to `key(count - 1)`, which must ascend; equal keys are allowed.
    /// `count` is at most [`Self::KEYS_MAX`].
    pub fn new<'k>(count: usize, key: impl Fn(usize) -> &'k [u8]) -> Self {
        debug_assert!(count <= Self::KEYS_MAX);
        let mut builder = Builder {
            key,
            made: Self::default(),
            below: Vec::new(),
            heads: Vec::new(),
            targets: Vec::new(),
            prefixes: Vec::new(),
        };
        builder.build(count);
        builder.finish()
    }

    /// Prefetches all heads. For an index over few keys that is about to be searched.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch_slice(&self.heads);
        prefetch_slice(&self.below);
        prefetch_slice(&self.prefixes);
        prefetch_slice(&self.targets);
    }

    /// The number of the first key after `wanted`, or the number of keys if there is none.
    /// `full` returns the key of a number and is called at most once.
    #[inline]
    pub fn upper_bound<'k>(&self, wanted: &[u8], full: impl FnOnce(usize) -> &'k [u8]) -> usize {
        self.equal_range(wanted, full).end
    }

    /// The numbers of the keys equal to `wanted`: from its lower to its upper bound. Otherwise as
    /// [`Self::upper_bound`].
    #[inline]
    pub fn equal_range<'k>(&self, wanted: &[u8], full: impl FnOnce(usize) -> &'k [u8]) -> Range<usize> {
        self.equal_range_by_rest(wanted, |number, known| full(number).get(known..).unwrap_or_default())
    }

    /// As [`Self::equal_range`], for a caller that holds only the bytes of a key that are not in
    /// its heads: `rest_of` returns the bytes of key `number` after its first `known` bytes. It is
    /// called at most once, and always with the same `known` for the same key.
    #[inline]
    pub fn equal_range_by_rest<'k>(
        &self,
        wanted: &[u8],
        rest_of: impl FnOnce(usize, usize) -> &'k [u8],
    ) -> Range<usize> {
        // Keys without a pattern: the heads of the first layer are in the order of the keys and
        // decide.
        if self.top.targets == DENSE && self.top.prefix == self.top.prefix_end {
            let (head, heads) = (head(wanted), self.heads_of(&self.top));
            let at = heads.partition_point(|held| *held < head);
            if heads.get(at) != Some(&head) {
                return at..at;
            }
        }
        self.search_layers(wanted, rest_of)
    }

    /// [`Self::equal_range_by_rest`] for any keys.
    #[inline(never)]
    fn search_layers<'k>(
        &self,
        wanted: &[u8],
        rest_of: impl FnOnce(usize, usize) -> &'k [u8],
    ) -> Range<usize> {
        let (mut layer, mut rest) = (&self.top, wanted);
        loop {
            let prefix = self.prefix(layer);
            // Random keys have no prefix: skip even the call.
            let after = if prefix.is_empty() { Some(rest) } else { rest.strip_prefix(prefix) };
            let Some(after) = after else {
                let at = if rest < prefix { layer.first } else { layer.end } as usize;
                return at..at;
            };
            let (head, heads) = (head(after), self.heads_of(layer));
            let at = heads.partition_point(|held| *held < head);
            let from = self.first_key(layer, at);
            if heads.get(at) != Some(&head) {
                return from..from;
            }
            if head & 0xff != GOES_ON {
                return from..self.first_key(layer, at + 1);
            }
            rest = &after[BYTES..];
            match self.layer_at(layer, at) {
                Some(below) => layer = below,
                None => {
                    // A single key, equal up to here.
                    let known = wanted.len() - rest.len();
                    return match rest_of(from, known).cmp(rest) {
                        Ordering::Less => from + 1..from + 1,
                        Ordering::Equal => from..from + 1,
                        Ordering::Greater => from..from,
                    };
                }
            }
        }
    }

    /// Whether keys have longer common prefixes than a head can distinguish: then searches often
    /// read a key.
    #[inline(always)]
    pub fn is_layered(&self) -> bool {
        !self.below.is_empty()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.top.end as usize
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.top.end == 0
    }

    /// Bytes held on the heap.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.below)
            + size_of_val(&*self.heads)
            + size_of_val(&*self.targets)
            + self.prefixes.len()
    }

    fn heads_of(&self, layer: &Layer) -> &[u64] {
        &self.heads[layer.heads as usize..layer.heads_end as usize]
    }

    fn prefix(&self, layer: &Layer) -> &[u8] {
        &self.prefixes[layer.prefix as usize..layer.prefix_end as usize]
    }

    /// The first key that head `at` of `layer` represents; beyond its heads, the first key after
    /// the layer.
    fn first_key(&self, layer: &Layer, at: usize) -> usize {
        if at >= (layer.heads_end - layer.heads) as usize {
            return layer.end as usize;
        }
        if layer.targets == DENSE {
            return layer.first as usize + at;
        }
        let target = self.targets[layer.targets as usize + at];
        if target & LAYER == 0 {
            return target as usize;
        }
        self.below[(target & !LAYER) as usize].first as usize
    }

    fn layer_at(&self, layer: &Layer, at: usize) -> Option<&Layer> {
        if layer.targets == DENSE {
            return None;
        }
        let target = self.targets[layer.targets as usize + at];
        (target & LAYER != 0).then(|| &self.below[(target & !LAYER) as usize])
    }
}

/// The next seven bytes of a key, zero-padded, and the number of bytes left, at most [`GOES_ON`].
#[inline]
fn head(rest: &[u8]) -> u64 {
    if let Some(next) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*next) & !0xff | GOES_ON;
    }
    let mut bytes = [0u8; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    bytes[BYTES] = rest.len() as u8;
    u64::from_be_bytes(bytes)
}

/// Builds the layers breadth first, so that the parts that every search reads are adjacent.
struct Builder<F> {
    key: F,
    made: LayeredHeads,
    below: Vec<Layer>,
    heads: Vec<u64>,
    targets: Vec<u32>,
    prefixes: Vec<u8>,
}

impl<'k, F: Fn(usize) -> &'k [u8]> Builder<F> {
    fn build(&mut self, count: usize) {
        // Layers found but not built yet: their number in `below`, their keys, the length of their
        // common prefix.
        let mut open = VecDeque::new();
        self.made.top = self.layer(0..count, 0, &mut open);
        while let Some((number, keys, depth)) = open.pop_front() {
            self.below[number] = self.layer(keys, depth, &mut open);
        }
    }

    fn layer(
        &mut self,
        keys: Range<usize>,
        depth: usize,
        open: &mut VecDeque<(usize, Range<usize>, usize)>,
    ) -> Layer {
        let prefix = self.prefixes.len() as u32;
        let mut depth = depth;
        // A prefix costs a comparison, so one is cut only if heads tie without it.
        if keys.clone().skip(1).any(|number| self.ties(number, depth)) {
            let (first, last) = (self.rest(keys.start, depth), self.rest(keys.end - 1, depth));
            let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
            self.prefixes.extend_from_slice(&first[..common]);
            depth += common;
        }
        let (heads, targets) = (self.heads.len(), self.targets.len());
        let mut number = keys.start;
        while number < keys.end {
            let held = head(self.rest(number, depth));
            let mut end = number + 1;
            while end < keys.end && head(self.rest(end, depth)) == held {
                end += 1;
            }
            self.heads.push(held);
            if end - number > 1 && held & 0xff == GOES_ON {
                self.targets.push(self.below.len() as u32 | LAYER);
                open.push_back((self.below.len(), number..end, depth + BYTES));
                self.below.push(Layer::default());
            } else {
                self.targets.push(number as u32);
            }
            number = end;
        }
        let dense = self.heads.len() - heads == keys.len();
        if dense {
            self.targets.truncate(targets);
        }
        Layer {
            first: keys.start as u32,
            end: keys.end as u32,
            heads: heads as u32,
            heads_end: self.heads.len() as u32,
            targets: if dense { DENSE } else { targets as u32 },
            prefix,
            prefix_end: self.prefixes.len() as u32,
        }
    }

    /// Whether key `number` and the one before it have the same head and continue.
    fn ties(&self, number: usize, depth: usize) -> bool {
        let held = head(self.rest(number, depth));
        held & 0xff == GOES_ON && held == head(self.rest(number - 1, depth))
    }

    fn rest(&self, number: usize, depth: usize) -> &'k [u8] {
        (self.key)(number).get(depth..).unwrap_or_default()
    }

    fn finish(self) -> LayeredHeads {
        LayeredHeads {
            below: self.below.into(),
            heads: self.heads.into(),
            targets: self.targets.into(),
            prefixes: self.prefixes.into(),
            ..self.made
        }
    }
}

#[cfg(test)]
mod tests;
