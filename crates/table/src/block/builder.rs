//! Builder of data blocks of the layout [tagged](super::tagged), without an allocation per block or
//! entry.
//!
//! Entries are kept unencoded until the block is full, because the prefixes and field widths depend
//! on all of them. The payload's length follows from a few sums, minimums and maximums, the
//! [`Shape`]. While all entries fit even in their widest form, the shape is not computed; near the
//! limit, each new entry is tried on a copy of the shape. The builder divides keys into groups with
//! a prefix each if that makes the block smaller. For keys of one length with short common prefixes
//! it does not: without groups, no suffix needs a length.
//!
//! Not here: the layout ([`super::tagged`]).

use shamba_key::{EntryKind, SeqNo, chunks};

use super::tagged::{FLAG_WIDE, HEADER_BYTES, LAYOUT_TAGGED, SUFFIX_WIDTH_SHIFT, TAG_WIDTH_SHIFT};

/// Entries in a group, as a power of two.
const GROUP_SHIFT: u32 = 3;
const GROUP_ENTRIES: usize = 1 << GROUP_SHIFT;
/// Maximum number of entries in a block with one-byte tags. With more entries, too many tags would
/// be equal by chance.
const NARROW_TAGS_MAX: usize = 100;
const _: () = assert!(NARROW_TAGS_MAX <= u8::MAX as usize, "a one-byte tag distinguishes 256 keys");
/// Buffers above this size, grown for a large value, are freed after the block.
const KEPT_BUFFER_BYTES: usize = 256 << 10;

/// Maximum length of an entry besides key and value in a block of up to 65,535 bytes: tag, offset,
/// sequence delta, kind, suffix length.
const WIDEST_BYTES: usize = 2 + 2 + 8 + 1 + 2;
/// Usual length of an entry besides key and value: tag, offset, sequence delta.
const USUAL_BYTES: usize = 1 + 2 + 2;

/// An entry to append, after the last one in internal order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    /// Length of the common prefix with the previous key; ignored for the first entry of a block.
    pub(crate) shared_bytes: usize,
    pub(crate) seq: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
    /// The block tag of the key's digest.
    pub(crate) tag: u16,
}

/// The figures from which the length of a payload follows.
#[derive(Clone, Copy, Default, Debug)]
struct Shape {
    entries: usize,
    key_bytes: usize,
    value_bytes: usize,
    /// Length of the prefix that all keys share.
    common_bytes: usize,
    /// Lengths of the shortest and the longest key.
    key_lengths: Lengths,
    smallest_seq: u64,
    largest_seq: u64,
    kind: Option<EntryKind>,
    /// Of the full groups: sum of prefix lengths; sum of prefix lengths times numbers of keys;
    /// minimum and maximum of suffix lengths.
    closed_prefix_bytes: usize,
    closed_saved_bytes: usize,
    closed_suffixes: Lengths,
    /// The group of the last entry: its number of keys, their common prefix, their lengths.
    open_entries: usize,
    open_prefix_bytes: usize,
    open_lengths: Lengths,
}

/// Minimum and maximum of some lengths.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    least: usize,
    greatest: usize,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { least: usize::MAX, greatest: 0 }
    }
}

impl Lengths {
    fn with(self, least: usize, greatest: usize) -> Self {
        debug_assert!(least <= greatest, "lengths from {least} to {greatest}");
        Self { least: self.least.min(least), greatest: self.greatest.max(greatest) }
    }

    /// Width of a field for the lengths minus `cut`; 0 if all are the same and fit into the
    /// header's byte.
    fn width(self, cut: usize) -> usize {
        debug_assert!(self.least >= cut, "a key of {} bytes without a prefix of {cut}", self.least);
        let greatest = self.greatest - cut;
        match greatest {
            ..=0xff => usize::from(self.least != self.greatest),
            _ => 2,
        }
    }
}

impl Shape {
    /// Adds an entry.
    #[inline]
    fn add(&mut self, entry: &Waiting) {
        let (key_bytes, shared_bytes) = (usize::from(entry.key_bytes), usize::from(entry.shared_bytes));
        let seq = entry.seq.0;
        debug_assert!(
            self.entries == 0 || shared_bytes <= key_bytes,
            "a key of {key_bytes} bytes shares {shared_bytes} with the one before"
        );
        if self.entries == 0 {
            self.common_bytes = key_bytes;
            (self.smallest_seq, self.largest_seq) = (seq, seq);
            self.kind = Some(entry.kind);
        } else {
            self.common_bytes = self.common_bytes.min(shared_bytes);
            (self.smallest_seq, self.largest_seq) = (self.smallest_seq.min(seq), self.largest_seq.max(seq));
            self.kind = self.kind.filter(|kind| *kind == entry.kind);
        }
        if self.open_entries == GROUP_ENTRIES {
            self.close_group();
        }
        self.open_prefix_bytes =
            if self.open_entries == 0 { key_bytes } else { self.open_prefix_bytes.min(shared_bytes) };
        self.open_lengths = self.open_lengths.with(key_bytes, key_bytes);
        self.open_entries += 1;
        self.entries += 1;
        self.key_bytes += key_bytes;
        self.value_bytes += entry.value_bytes as usize;
        self.key_lengths = self.key_lengths.with(key_bytes, key_bytes);
    }

    fn close_group(&mut self) {
        debug_assert!(self.open_entries > 0, "a group without entries is closed");
        self.closed_prefix_bytes += self.open_prefix_bytes;
        self.closed_saved_bytes += self.open_entries * self.open_prefix_bytes;
        self.closed_suffixes = self.suffixes();
        self.open_entries = 0;
        self.open_lengths = Lengths::default();
    }

    /// Suffix lengths of all entries if there are groups.
    fn suffixes(&self) -> Lengths {
        let (lengths, prefix_bytes) = (self.open_lengths, self.open_prefix_bytes);
        self.closed_suffixes.with(lengths.least - prefix_bytes, lengths.greatest - prefix_bytes)
    }

    fn groups(&self) -> usize {
        self.entries.div_ceil(GROUP_ENTRIES)
    }

    /// Length of all groups' prefixes after the common one.
    fn prefix_bytes(&self) -> usize {
        debug_assert!(
            self.closed_prefix_bytes + self.open_prefix_bytes >= self.groups() * self.common_bytes,
            "a group's prefix is shorter than the common one of {} bytes",
            self.common_bytes
        );
        self.closed_prefix_bytes + self.open_prefix_bytes - self.groups() * self.common_bytes
    }

    /// Length of prefix lengths, prefixes, suffix lengths and suffixes if there are groups.
    fn grouped_bytes(&self) -> usize {
        let saved_bytes = self.closed_saved_bytes + self.open_entries * self.open_prefix_bytes;
        debug_assert!(
            saved_bytes <= self.key_bytes,
            "groups save {saved_bytes} of {} key bytes",
            self.key_bytes
        );
        2 * self.groups()
            + self.prefix_bytes()
            + self.entries * self.suffixes().width(0)
            + (self.key_bytes - saved_bytes)
    }

    /// Length of suffix lengths and suffixes if there are no groups.
    fn ungrouped_bytes(&self) -> usize {
        let width = self.key_lengths.width(self.common_bytes);
        self.entries * width + (self.key_bytes - self.entries * self.common_bytes)
    }

    /// Whether groups make the payload smaller; the ends of their prefixes must fit into 16 bits.
    fn is_grouped(&self) -> bool {
        self.grouped_bytes() < self.ungrouped_bytes() && self.prefix_bytes() <= usize::from(u16::MAX)
    }

    fn tag_width(&self, tags: bool) -> usize {
        match (tags, self.entries) {
            (false, _) => 0,
            (true, ..=NARROW_TAGS_MAX) => 1,
            (true, _) => 2,
        }
    }

    fn seq_width(&self) -> usize {
        debug_assert!(
            self.smallest_seq <= self.largest_seq,
            "sequence numbers from {} to {}",
            self.smallest_seq,
            self.largest_seq
        );
        ((64 - (self.largest_seq - self.smallest_seq).leading_zeros()) as usize).div_ceil(8)
    }

    /// Lengths of the entries, and of the group prefixes and prefix lengths.
    fn sizes(&self) -> Sizes {
        let grouped = self.is_grouped();
        let keys = if grouped { self.grouped_bytes() } else { self.ungrouped_bytes() };
        let apart = if grouped { 2 * self.groups() + self.prefix_bytes() } else { 0 };
        let head = self.seq_width() + usize::from(self.kind.is_none());
        let entries_bytes = keys - apart + self.entries * head + self.value_bytes;
        // Only the starts of entries need to fit, but a block of several entries never comes close
        // to the limit.
        let wide = self.entries > 1 && entries_bytes > usize::from(u16::MAX);
        Sizes { grouped, wide, apart_bytes: apart, entries_bytes }
    }

    fn payload_bytes(&self, tags: bool) -> usize {
        let sizes = self.sizes();
        let offset_width = if sizes.wide { 4 } else { 2 };
        HEADER_BYTES
            + self.entries * (self.tag_width(tags) + offset_width)
            + self.common_bytes
            + sizes.apart_bytes
            + sizes.entries_bytes
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    grouped: bool,
    wide: bool,
    /// Length of the groups' prefix lengths and prefixes.
    apart_bytes: usize,
    entries_bytes: usize,
}

/// A pending entry of the open block. Its key and value follow those of the previous entry in the
/// buffer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    seq: SeqNo,
    value_bytes: u32,
    // Keys are at most 65,535 bytes long, so the common prefixes are, too.
    key_bytes: u16,
    shared_bytes: u16,
    tag: u16,
    kind: EntryKind,
}

impl Waiting {
    #[inline]
    fn new(entry: &NewEntry<'_>) -> Self {
        debug_assert!(entry.key.len() <= usize::from(u16::MAX));
        Self {
            seq: entry.seq,
            value_bytes: entry.value.len() as u32,
            key_bytes: entry.key.len() as u16,
            shared_bytes: entry.shared_bytes as u16,
            tag: entry.tag,
            kind: entry.kind,
        }
    }
}

/// Length of the prefix that the keys of a group share.
fn shared_by_all(group: &[Waiting]) -> usize {
    let Some((first, rest)) = group.split_first() else {
        return 0;
    };
    let least = rest.iter().map(|entry| entry.shared_bytes).min();
    usize::from(least.unwrap_or(first.key_bytes))
}

/// Collects entries into a data block.
#[derive(Debug)]
pub(crate) struct DataBlockBuilder {
    tags: bool,
    /// Shape of a prefix of the pending entries; brought up to date when it is needed.
    shape: Shape,
    /// Key and value of each entry, so that suffix and value are contiguous as in the block.
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl DataBlockBuilder {
    /// Creates a builder of blocks with `tags`, or of blocks that are searched by key.
    pub(crate) fn new(tags: bool) -> Self {
        Self { tags, shape: Shape::default(), bytes: Vec::new(), waiting: Vec::new() }
    }

    /// Whether `entry` fits into a payload of at most `limit_bytes`; every entry fits into an empty
    /// one.
    pub(crate) fn fits(&mut self, entry: &NewEntry<'_>, limit_bytes: usize) -> bool {
        self.surely_fits(entry, limit_bytes) || self.shape_with(entry, limit_bytes).is_some()
    }

    /// Whether `entry` fits even if no prefix is shared and all fields have their widest form.
    #[inline]
    fn surely_fits(&self, entry: &NewEntry<'_>, limit_bytes: usize) -> bool {
        let bytes = self.bytes.len() + entry.key.len() + entry.value.len();
        let bytes_max = bytes + HEADER_BYTES + (self.waiting.len() + 1) * WIDEST_BYTES;
        bytes_max <= limit_bytes && limit_bytes <= usize::from(u16::MAX)
    }

    /// The shape with `entry`, if it fits.
    fn shape_with(&mut self, entry: &NewEntry<'_>, limit_bytes: usize) -> Option<Shape> {
        self.shape = self.whole_shape();
        let mut shape = self.shape;
        shape.add(&Waiting::new(entry));
        let fits = shape.payload_bytes(self.tags) <= limit_bytes && shape.entries <= usize::from(u16::MAX);
        (fits || self.is_empty()).then_some(shape)
    }

    /// The shape of all entries.
    fn whole_shape(&self) -> Shape {
        debug_assert!(
            self.shape.entries <= self.waiting.len(),
            "the shape has {} of {} entries",
            self.shape.entries,
            self.waiting.len()
        );
        let mut shape = self.shape;
        self.waiting[shape.entries..].iter().for_each(|entry| shape.add(entry));
        shape
    }

    /// Appends `entry` if the payload then takes at most `limit_bytes`, or if the block is empty;
    /// returns whether it did. The caller adds entries in internal order.
    #[inline]
    pub(crate) fn push(&mut self, entry: &NewEntry<'_>, limit_bytes: usize) -> bool {
        if !self.surely_fits(entry, limit_bytes) {
            match self.shape_with(entry, limit_bytes) {
                Some(shape) => self.shape = shape,
                None => return false,
            }
        }
        debug_assert!(
            self.waiting.len() < usize::from(u16::MAX),
            "{} entries, more than a block can count",
            self.waiting.len()
        );
        debug_assert!(
            self.is_empty() || entry.shared_bytes <= entry.key.len(),
            "a key of {} bytes shares {} with the one before",
            entry.key.len(),
            entry.shared_bytes
        );
        self.bytes.reserve(entry.key.len() + entry.value.len());
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value);
        self.waiting.push(Waiting::new(entry));
        true
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Estimate of the payload's length if it ended now, without prefix compression.
    pub(crate) fn about_payload_bytes(&self) -> usize {
        HEADER_BYTES + self.bytes.len() + self.waiting.len() * USUAL_BYTES
    }

    /// Length of the payload if it ended now.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.whole_shape().payload_bytes(self.tags)
    }

    /// Bytes allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.waiting.capacity() * size_of::<Waiting>()
    }

    /// Appends the payload to `out`; the builder is empty afterwards.
    pub(crate) fn finish_into(&mut self, out: &mut Vec<u8>) {
        self.shape = self.whole_shape();
        let (start, payload_bytes) = (out.len(), self.shape.payload_bytes(self.tags));
        out.reserve(payload_bytes + size_of::<u64>());
        self.write(out);
        debug_assert_eq!(out.len() - start, payload_bytes);
        debug_assert_eq!(super::DataBlock::view(&out[start..]).and_then(|block| block.check()), Ok(()));
        self.reset();
    }

    fn reset(&mut self) {
        self.shape = Shape::default();
        self.waiting.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BUFFER_BYTES);
        debug_assert!(self.is_empty() && self.shape.entries == 0, "a reset builder still counts entries");
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (shape, sizes) = (&self.shape, self.shape.sizes());
        let (tag_width, seq_width) = (shape.tag_width(self.tags), shape.seq_width());
        let (lengths, cut) =
            if sizes.grouped { (shape.suffixes(), 0) } else { (shape.key_lengths, shape.common_bytes) };
        let suffix_width = if shape.entries == 0 { 0 } else { lengths.width(cut) };
        let suffix_bytes =
            if suffix_width == 0 && shape.entries > 0 { lengths.greatest - cut } else { 0 } as u64;
        let flags = (u8::from(sizes.wide) * FLAG_WIDE)
            | ((tag_width as u8) << TAG_WIDTH_SHIFT)
            | ((suffix_width as u8) << SUFFIX_WIDTH_SHIFT);
        let kind = shape.kind.map_or(0, EntryKind::as_byte);
        let group_shift = if sizes.grouped { GROUP_SHIFT as u8 } else { 0 };
        out.extend_from_slice(&[LAYOUT_TAGGED, flags, seq_width as u8 | (kind << 4), group_shift]);
        out.extend_from_slice(&(shape.entries as u16).to_le_bytes());
        out.extend_from_slice(&(shape.common_bytes as u16).to_le_bytes());
        out.extend_from_slice(&(shape.smallest_seq | (suffix_bytes << 56)).to_le_bytes());
        match tag_width {
            0 => {}
            1 => out.extend(self.waiting.iter().map(|entry| entry.tag as u8)),
            _ => self.waiting.iter().for_each(|entry| out.extend_from_slice(&entry.tag.to_le_bytes())),
        }
        debug_assert!(
            tag_width == 0 || self.waiting.len() == shape.entries,
            "{} tags of {} entries",
            self.waiting.len(),
            shape.entries
        );
        out.extend_from_slice(&self.bytes[..shape.common_bytes]);
        let offset_width = if sizes.wide { 4 } else { 2 };
        let mut offset_at = out.len();
        out.resize(offset_at + shape.entries * offset_width, 0);
        if sizes.grouped {
            self.write_group_prefixes(out);
        }
        let entries_at = out.len();
        let mut start = 0;
        for group in self.waiting.chunks(GROUP_ENTRIES) {
            let prefix_bytes = if sizes.grouped { shared_by_all(group) } else { shape.common_bytes };
            for entry in group {
                let offset = ((out.len() - entries_at) as u32).to_le_bytes();
                match out.get_mut(offset_at..).and_then(<[u8]>::first_chunk_mut::<2>) {
                    Some(place) if !sizes.wide => *place = [offset[0], offset[1]],
                    _ => out[offset_at..offset_at + 4].copy_from_slice(&offset),
                }
                offset_at += offset_width;
                let key_bytes = usize::from(entry.key_bytes);
                push_number(out, entry.seq.0 - shape.smallest_seq, seq_width);
                if shape.kind.is_none() {
                    out.push(entry.kind.as_byte());
                }
                push_number(out, (key_bytes - prefix_bytes) as u64, suffix_width);
                debug_assert!(
                    prefix_bytes <= key_bytes,
                    "a prefix of {prefix_bytes} bytes of a key of {key_bytes}"
                );
                let end = start + key_bytes + entry.value_bytes as usize;
                out.extend_from_slice(&self.bytes[start + prefix_bytes..end]);
                start = end;
            }
        }
    }

    /// Writes the end of each group's prefix, then the prefixes.
    fn write_group_prefixes(&self, out: &mut Vec<u8>) {
        let common_bytes = self.shape.common_bytes;
        let mut end = 0;
        for group in self.waiting.chunks(GROUP_ENTRIES) {
            end += shared_by_all(group) - common_bytes;
            debug_assert!(
                end <= usize::from(u16::MAX),
                "the prefixes of groups end at {end}, beyond 16 bits"
            );
            out.extend_from_slice(&(end as u16).to_le_bytes());
        }
        let mut start = 0;
        for group in self.waiting.chunks(GROUP_ENTRIES) {
            out.extend_from_slice(&self.bytes[start + common_bytes..start + shared_by_all(group)]);
            let bytes = |entry: &Waiting| usize::from(entry.key_bytes) + entry.value_bytes as usize;
            start += group.iter().map(bytes).sum::<usize>();
        }
    }
}

/// Length of the common prefix of two keys.
#[inline]
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let mut shared = 0;
    for (a, b) in chunks::<8>(a).0.zip(chunks::<8>(b).0) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return shared + differing.trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    shared + a.iter().zip(b).skip(shared).take_while(|(a, b)| a == b).count()
}

#[inline]
fn push_number(out: &mut Vec<u8>, number: u64, width: usize) {
    debug_assert!(
        matches!(width, 0 | 8) || number >> (8 * width) == 0,
        "{number} does not fit into {width} bytes"
    );
    if width > 0 {
        // Eight bytes are one store; the surplus is truncated.
        let end = out.len() + width;
        out.extend_from_slice(&number.to_le_bytes());
        out.truncate(end);
    }
}
