//! The layout `tagged`: data blocks whose entries are found by a tag of their key's digest.
//!
//! ```text
//! +--------+------+--------+---------+---------+-------------+-------------+-------------+------------+
//! | header | tags | common | offsets | lengths | 1st group's | 2nd group's | entry, ...  | entry      |
//! |        |      | prefix |         | (u16)   | prefix      | prefix, ... |             |            |
//! +--------+------+--------+---------+---------+-------------+-------------+-------------+------------+
//!  0        16     16 + count x tag width                                   ^ offsets count from here
//!
//! header   0   layout = 2
//!          1   flags: bit 0 offsets of 4 bytes, else 2; bits 1-2 tag width (0, 1, 2); bits 3-4 width of suffix
//!              lengths (0, 1, 2)
//!          2   low half: width of sequence deltas (0 to 8); high half: the kind of every entry, 0 = each has one
//!          3   entries in a group, as a power of two (1 to 15); 0 = there are no groups
//!          4   count u16
//!          6   common prefix length u16
//!          8   base sequence number, 7 bytes
//!          15  length of every suffix, if their lengths have no width
//!
//! lengths  where each group's prefix ends, counted from the start of the first one
//! entry    sequence number - base, kind, suffix length (each absent where its width is 0), suffix, value
//! ```
//!
//! A key is the common prefix, its group's prefix and its suffix; a value ends where the next entry starts. A
//! hit touches the line of header and tags, the offset and the entry; a miss, nothing but the tags. The tags
//! are one byte wide, two in blocks of more than 100 entries (where one byte would often be equal by chance),
//! or absent: then the search is binary, by key.
//!
//! Not here: how the widths are chosen ([`super::builder`]).

use std::cmp::Ordering;

use shamba_key::{EntryKind, SeqNo};

use super::EntryParts;
use super::tags::Matches;

/// The layout byte of tagged blocks.
pub(super) const LAYOUT_TAGGED: u8 = 2;
/// What precedes the tags.
pub(super) const HEADER_BYTES: usize = 16;
/// Flag: four-byte offsets.
pub(super) const FLAG_WIDE: u8 = 1;
/// Where the widths of tags and of suffix lengths are in the flags.
pub(super) const TAG_WIDTH_SHIFT: u32 = 1;
pub(super) const SUFFIX_WIDTH_SHIFT: u32 = 3;
const FLAGS_KNOWN: u8 = 0b1_1111;
/// The widest sequence delta.
const SEQ_WIDTH_MAX: usize = 8;
const GROUP_SHIFT_MAX: u8 = 15;

/// The bits of a number of so many bytes.
const MASKS: [u64; 9] = [
    0,
    0xff,
    0xffff,
    0xff_ffff,
    0xffff_ffff,
    0xff_ffff_ffff,
    0xffff_ffff_ffff,
    0xff_ffff_ffff_ffff,
    u64::MAX,
];

/// A tagged block whose header was checked. Every access may still find damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged<'a> {
    bytes: &'a [u8],
    count: usize,
    base_seq: u64,
    /// The kind of every entry, or `None` if each has its own.
    kind: Option<EntryKind>,
    tag_width: usize,
    offset_width: usize,
    seq_width: usize,
    suffix_width: usize,
    /// The length of every suffix where `suffix_width` is 0.
    suffix_bytes: usize,
    /// Entries in a group, as a power of two; 0: no groups.
    group_shift: u32,
    common_at: usize,
    offsets_at: usize,
    /// Where the groups' prefix lengths are.
    lengths_at: usize,
    prefixes_at: usize,
    entries_at: usize,
}

/// An entry where it lies, its prefixes apart.
#[derive(Clone, Copy)]
struct Lying<'a> {
    suffix: &'a [u8],
    parts: EntryParts<'a>,
}

impl<'a> Tagged<'a> {
    /// Checks the header, and that what it says fits.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, String> {
        Self::from_header(bytes).ok_or_else(|| wrong_header(bytes))
    }

    #[inline]
    fn from_header(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let [layout, flags, widths, group_shift, c0, c1, p0, p1, last @ ..] = *header;
        let last = u64::from_le_bytes(last);
        let (tag_width, suffix_width) = (flags >> TAG_WIDTH_SHIFT & 3, flags >> SUFFIX_WIDTH_SHIFT & 3);
        let seq_width = usize::from(widths & 0xf);
        let known = layout == LAYOUT_TAGGED
            && flags & !FLAGS_KNOWN == 0
            && tag_width < 3
            && suffix_width < 3
            && seq_width <= SEQ_WIDTH_MAX
            && group_shift <= GROUP_SHIFT_MAX;
        if !known {
            return None;
        }
        let kind = match widths >> 4 {
            0 => None,
            byte => Some(EntryKind::from_byte(byte)?),
        };
        let (tag_width, group_shift) = (usize::from(tag_width), u32::from(group_shift));
        let offset_width = if flags & FLAG_WIDE == 0 { 2 } else { 4 };
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        // Sums of a few numbers of 16 bits, times 4 at most: far from any overflow.
        let common_at = HEADER_BYTES + count * tag_width;
        let offsets_at = common_at + usize::from(u16::from_le_bytes([p0, p1]));
        let lengths_at = offsets_at + count * offset_width;
        let groups = if group_shift == 0 { 0 } else { (count + (1 << group_shift) - 1) >> group_shift };
        let prefixes_at = lengths_at + 2 * groups;
        let mut block = Self {
            bytes,
            count,
            base_seq: last & MASKS[7],
            kind,
            tag_width,
            offset_width,
            seq_width,
            suffix_width: usize::from(suffix_width),
            suffix_bytes: (last >> 56) as usize,
            group_shift,
            common_at,
            offsets_at,
            lengths_at,
            prefixes_at,
            entries_at: prefixes_at,
        };
        if groups > 0 {
            block.entries_at += block.prefix_end(groups - 1)?;
        }
        (block.entries_at <= bytes.len()).then_some(block)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The number of `width` bytes at `at`, in one load where eight bytes are there.
    #[inline(always)]
    fn number(&self, at: usize, width: usize) -> Option<u64> {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            Some(word) => Some(u64::from_le_bytes(*word) & MASKS.get(width)?),
            None => number_near_the_end(self.bytes, at, width),
        }
    }

    /// Where the prefix of group `group` ends, counted from the start of the first one.
    #[inline(always)]
    fn prefix_end(&self, group: usize) -> Option<usize> {
        let at = self.lengths_at + 2 * group;
        let bytes = self.bytes.get(at..)?.first_chunk::<2>()?;
        Some(usize::from(u16::from_le_bytes(*bytes)))
    }

    /// The prefix that the group of entry `number` adds to the common one.
    #[inline(always)]
    fn group_prefix(&self, number: usize) -> Option<&'a [u8]> {
        if self.group_shift == 0 {
            return Some(&[]);
        }
        let group = number >> self.group_shift;
        let start = if group == 0 { 0 } else { self.prefix_end(group - 1)? };
        let end = self.prefix_end(group)?;
        self.bytes.get(self.prefixes_at + start..self.prefixes_at + end)
    }

    #[inline(always)]
    fn common(&self) -> &'a [u8] {
        self.bytes.get(self.common_at..self.offsets_at).unwrap_or_default()
    }

    /// Where entry `number`, which exists, starts and ends in the payload.
    #[inline(always)]
    fn span(&self, number: usize) -> Option<(usize, usize)> {
        let (at, width) = (self.offsets_at + number * self.offset_width, self.offset_width);
        let start = self.entries_at + self.number(at, width)? as usize;
        let end = if number + 1 < self.count {
            self.entries_at + self.number(at + width, width)? as usize
        } else {
            self.bytes.len()
        };
        Some((start, end))
    }

    /// Entry `number`; `None` where it is damaged or past the end.
    #[inline(always)]
    fn lying(&self, number: usize) -> Option<Lying<'a>> {
        if number >= self.count {
            return None;
        }
        let (start, end) = self.span(number)?;
        let mut at = start;
        let mut seq = self.base_seq;
        if self.seq_width > 0 {
            seq = seq.checked_add(self.number(at, self.seq_width)?).filter(|seq| *seq <= SeqNo::MAX.0)?;
            at += self.seq_width;
        }
        let kind = match self.kind {
            Some(kind) => kind,
            None => {
                at += 1;
                EntryKind::from_byte(*self.bytes.get(at - 1)?)?
            }
        };
        let mut suffix_bytes = self.suffix_bytes;
        if self.suffix_width > 0 {
            suffix_bytes = self.number(at, self.suffix_width)? as usize;
            at += self.suffix_width;
        }
        // The three fields may lie beyond `end` if that is wrong: then `at` is above it, and this is `None`.
        let (suffix, value) = self.bytes.get(at..end)?.split_at_checked(suffix_bytes)?;
        let parts = EntryParts { seq: SeqNo(seq), kind, value, value_start: at + suffix_bytes };
        Some(Lying { suffix, parts })
    }

    /// The newest version of exactly `key` that is not newer than `seq`.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: SeqNo, tag: u16) -> Result<Option<EntryParts<'a>>, String> {
        if self.tag_width == 0 {
            return self.find_by_key(key, seq);
        }
        for number in Matches::new(self.bytes, HEADER_BYTES, self.count, self.tag_width == 2, tag) {
            let (Some(entry), Some(prefix)) = (self.lying(number), self.group_prefix(number)) else {
                return Err(malformed(number));
            };
            // Versions are in order, newest first: the first that is old enough is the answer.
            if entry.parts.seq <= seq && is_of(key, self.common(), prefix, entry.suffix) {
                return Ok(Some(entry.parts));
            }
        }
        Ok(None)
    }

    fn find_by_key(&self, key: &[u8], seq: SeqNo) -> Result<Option<EntryParts<'a>>, String> {
        let number = self.lower_bound(key, seq)?;
        if number == self.count {
            return Ok(None);
        }
        let (Some(entry), Some(prefix)) = (self.lying(number), self.group_prefix(number)) else {
            return Err(malformed(number));
        };
        Ok(is_of(key, self.common(), prefix, entry.suffix).then_some(entry.parts))
    }

    /// The number of the first entry at or after `(key, seq)`; the count if there is none.
    pub(super) fn lower_bound(&self, key: &[u8], seq: SeqNo) -> Result<usize, String> {
        let common = self.common();
        let Some(rest) = key.strip_prefix(common) else {
            return Ok(if key < common { 0 } else { self.count });
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let (Some(entry), Some(prefix)) = (self.lying(middle), self.group_prefix(middle)) else {
                return Err(malformed(middle));
            };
            let order = match rest.split_at_checked(prefix.len()) {
                Some((start, rest)) => prefix.cmp(start).then_with(|| entry.suffix.cmp(rest)),
                // Shorter than the prefix: equal as far as it goes, the prefix is greater.
                None => prefix.cmp(rest),
            };
            if order.then_with(|| seq.cmp(&entry.parts.seq)) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Entry `number`, its key put into `key`.
    pub(super) fn entry_into(&self, number: usize, key: &mut Vec<u8>) -> Result<EntryParts<'a>, String> {
        let (Some(entry), Some(prefix)) = (self.lying(number), self.group_prefix(number)) else {
            return Err(malformed(number));
        };
        key.clear();
        key.extend_from_slice(self.common());
        key.extend_from_slice(prefix);
        key.extend_from_slice(entry.suffix);
        Ok(entry.parts)
    }

    /// Entry `number`, where `key` holds the key of the one before.
    #[inline]
    pub(super) fn next_into(&self, number: usize, key: &mut Vec<u8>) -> Result<EntryParts<'a>, String> {
        let same_group = self.group_shift == 0 || number & ((1 << self.group_shift) - 1) != 0;
        if number == 0 || !same_group {
            return self.entry_into(number, key);
        }
        let (Some(entry), Some(prefix)) = (self.lying(number), self.group_prefix(number)) else {
            return Err(malformed(number));
        };
        key.truncate(self.offsets_at - self.common_at + prefix.len());
        key.extend_from_slice(entry.suffix);
        Ok(entry.parts)
    }

    pub(super) fn tag_agrees(&self, number: usize, tag: u16) -> bool {
        let found = self.number(HEADER_BYTES + number * self.tag_width, self.tag_width);
        self.tag_width == 0 || found == MASKS.get(self.tag_width).map(|mask| u64::from(tag) & mask)
    }

    /// Checks the structure: offsets and group prefixes that ascend, entries that fit.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut expected = self.entries_at;
        for number in 0..self.count {
            let (start, end) = self.span(number).ok_or_else(|| malformed(number))?;
            if start != expected {
                return Err(format!("entry {number} does not start where the one before it ends"));
            }
            if self.lying(number).is_none() || self.group_prefix(number).is_none() {
                return Err(malformed(number));
            }
            expected = end;
        }
        if expected != self.bytes.len() {
            return Err(format!("{} bytes belong to no entry", self.bytes.len() - expected));
        }
        if self.suffix_width > 0 && self.suffix_bytes > 0 {
            return Err("suffixes have a length each and one for all".to_owned());
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> &'static str {
        match self.tag_width {
            0 => "untagged",
            1 => "tagged",
            _ => "tagged-2",
        }
    }
}

/// Whether `key` is these three pieces. The suffix first: it is what tells keys with equal tags apart.
#[inline(always)]
fn is_of(key: &[u8], common: &[u8], prefix: &[u8], suffix: &[u8]) -> bool {
    if key.len() != common.len() + prefix.len() + suffix.len() {
        return false;
    }
    let Some((start, end)) = key.split_at_checked(common.len() + prefix.len()) else {
        return false;
    };
    end == suffix && start.starts_with(common) && start.ends_with(prefix)
}

/// As [`Tagged::number`], where fewer than eight bytes are left.
#[cold]
fn number_near_the_end(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let found = bytes.get(at..)?.get(..width)?;
    let mut word = [0; 8];
    word.get_mut(..width)?.copy_from_slice(found);
    Some(u64::from_le_bytes(word))
}

#[cold]
fn malformed(number: usize) -> String {
    format!("entry {number} is malformed")
}

#[cold]
fn wrong_header(bytes: &[u8]) -> String {
    let header = bytes.get(..HEADER_BYTES).unwrap_or(bytes);
    match header.first() {
        Some(&LAYOUT_TAGGED) => {
            format!("the header of a tagged block, {header:02x?}, does not fit {} bytes", bytes.len())
        }
        _ => format!("unknown block layout {:?}", header.first()),
    }
}
