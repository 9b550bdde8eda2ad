//! The layout `tagged`: data blocks whose entries are found by a tag of their key's digest.
//!
//! ```text
//! +--------+------+--------+---------+---------+-----------+-----------+------------+-------+
//! | header | tags | common | offsets | lengths | group 1's | group 2's | entry, ... | entry |
//! |        |      | prefix |         | (u16)   | prefix    | prefix .. |            |       |
//! +--------+------+--------+---------+---------+-----------+-----------+------------+-------+
//!  0        16     16 + count x tag width                              ^ offsets count from here
//!
//! header   0   layout = 2
//!          1   flags: bit 0 offsets of 4 bytes, else 2; bits 1-2 tag width (0, 1, 2); bits 3-4
//!              width of suffix lengths (0, 1, 2)
//!          2   low half: width of sequence deltas (0 to 8); high half: the kind of every entry,
//!              0 = each entry has its own
//!          3   entries in a group, as a power of two (1 to 15); 0 = there are no groups
//!          4   count u16
//!          6   common prefix length u16
//!          8   base sequence number, 7 bytes
//!          15  length of every suffix, if the width of suffix lengths is 0
//!
//! lengths  end of each group's prefix, relative to the start of the first one
//! entry    sequence number - base, kind, suffix length (each absent where its width is 0),
//!          suffix, value
//! ```
//!
//! A key is the common prefix, its group's prefix and its suffix; a value ends where the next entry
//! starts. A search that finds the key reads the cache line of header and tags, the offset and the
//! entry; one that does not reads only the tags. Tags are one byte wide, or two in blocks of more
//! than 100 entries, where one byte would often be equal by chance. In blocks without tags the
//! search is binary, by key.
//!
//! Not here: the choice of the widths ([`super::builder`]), access to one entry after the other
//! ([`opened`]).

mod bound;
mod copied;
mod opened;

pub(crate) use self::bound::Window;
pub(super) use self::opened::{KeyInGroup, Opened};

use std::ops::Range;

use shamba_key::{EntryKind, MAX_KEY_BYTES, SeqNo, prefetch_address, prefetch_line};

use super::EntryParts;
use super::pieces::{is_of, number_near_the_end};
use super::tags::Tags;

/// The layout byte of tagged blocks.
pub(super) const LAYOUT_TAGGED: u8 = 2;
/// Length of the header, which precedes the tags.
pub(super) const HEADER_BYTES: usize = 16;
/// Flag: four-byte offsets.
pub(super) const FLAG_WIDE: u8 = 1;
/// Positions of the tag width and the suffix-length width in the flags.
pub(super) const TAG_WIDTH_SHIFT: u32 = 1;
pub(super) const SUFFIX_WIDTH_SHIFT: u32 = 3;
/// Bits of the first half of the header that have a fixed value: the layout, the unknown flags, and
/// the upper half of the group shift.
const HEAD_KNOWN: u64 = 0xff | 0xe0 << 8 | 0xf0 << 24;
/// The lower bit of each of the two width fields in the flags: a width of 3 is invalid.
const HEAD_WIDTH_OF_3: u64 = 1 << (8 + TAG_WIDTH_SHIFT) | 1 << (8 + SUFFIX_WIDTH_SHIFT);
/// All kinds up to this one exist.
const KIND_MAX: u8 = EntryKind::ValueFileRefWithExpiry as u8;
/// Maximum width of a sequence delta.
const SEQ_WIDTH_MAX: usize = 8;

/// Mask of a number, by its width in bytes.
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
    /// The first half of the header, layout to common length, in a register: a miss needs no more.
    head: u64,
}

/// Places derived from the header.
#[derive(Clone, Copy, Debug)]
struct Places {
    count: usize,
    base_seq: u64,
    /// The kind of every entry; 0: each entry has its own.
    kind: u8,
    seq_width: usize,
    suffix_width: usize,
    /// The length of every suffix if `suffix_width` is 0.
    suffix_bytes: usize,
    /// Length of an entry before its suffix.
    entry_head_bytes: usize,
    is_wide: bool,
    /// Entries in a group, as a power of two; 0: no groups.
    group_shift: u32,
    common_at: usize,
    offsets_at: usize,
    /// Position of the ends of the groups' prefixes.
    ends_at: usize,
    prefixes_at: usize,
    entries_at: usize,
}

/// Start of an entry in the payload, and its suffix and value.
#[derive(Clone, Copy)]
struct LocatedEntry<'a> {
    start: usize,
    suffix: &'a [u8],
    value: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// Checks the header only; every access checks that the header's lengths fit.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, String> {
        let head = bytes.first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head));
        let block = Self { bytes, head };
        // Bit n: bits n and n + 1 of the head are both set.
        let both = head & head >> 1;
        let known = bytes.len() >= HEADER_BYTES
            && head & HEAD_KNOWN == u64::from(LAYOUT_TAGGED)
            && both & HEAD_WIDTH_OF_3 == 0
            && block.seq_width() <= SEQ_WIDTH_MAX
            && block.kind() <= KIND_MAX;
        if known { Ok(block) } else { Err(wrong_header(bytes)) }
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        (self.head >> 8) as u8
    }

    #[inline(always)]
    fn tag_width(&self) -> usize {
        usize::from(self.flags() >> TAG_WIDTH_SHIFT & 3)
    }

    #[inline(always)]
    fn suffix_width(&self) -> usize {
        usize::from(self.flags() >> SUFFIX_WIDTH_SHIFT & 3)
    }

    #[inline(always)]
    fn seq_width(&self) -> usize {
        (self.head >> 16 & 0xf) as usize
    }

    #[inline(always)]
    fn kind(&self) -> u8 {
        (self.head >> 20 & 0xf) as u8
    }

    #[inline(always)]
    fn group_shift(&self) -> u32 {
        (self.head >> 24 & 0xff) as u32
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        (self.head >> 32 & 0xffff) as usize
    }

    /// `None` if the header's lengths do not fit.
    #[inline(always)]
    fn places(&self) -> Option<Places> {
        let (count, group_shift, is_wide) = (self.len(), self.group_shift(), self.flags() & FLAG_WIDE != 0);
        let last = u64::from_le_bytes(*self.bytes.get(8..)?.first_chunk()?);
        let (seq_width, suffix_width, kind) = (self.seq_width(), self.suffix_width(), self.kind());
        // Sums of a few 16-bit numbers, multiplied by at most 4: no overflow.
        let common_at = HEADER_BYTES + count * self.tag_width();
        let offsets_at = common_at + (self.head >> 48) as usize;
        let ends_at = offsets_at + (count << if is_wide { 2 } else { 1 });
        let groups = if group_shift == 0 { 0 } else { (count + (1 << group_shift) - 1) >> group_shift };
        let prefixes_at = ends_at + 2 * groups;
        let prefix_bytes = if groups == 0 { 0 } else { self.short(prefixes_at - 2)? };
        Some(Places {
            count,
            base_seq: last & MASKS[7],
            kind,
            seq_width,
            suffix_width,
            suffix_bytes: (last >> 56) as usize,
            entry_head_bytes: seq_width + usize::from(kind == 0) + suffix_width,
            is_wide,
            group_shift,
            common_at,
            offsets_at,
            ends_at,
            prefixes_at,
            entries_at: prefixes_at + prefix_bytes,
        })
    }

    /// The 2-byte number at `at`.
    #[inline(always)]
    fn short(&self, at: usize) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?)))
    }

    /// The number of `width` bytes at `at`, in one load if eight bytes follow.
    #[inline(always)]
    fn number(&self, at: usize, width: usize) -> Option<u64> {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            Some(word) => Some(u64::from_le_bytes(*word) & MASKS.get(width)?),
            None => number_near_the_end(self.bytes, at, width),
        }
    }

    #[inline(always)]
    fn common(&self, at: &Places) -> Option<&'a [u8]> {
        self.bytes.get(at.common_at..at.offsets_at)
    }

    /// The prefix that the group of entry `number` adds to the common one.
    #[inline(always)]
    fn group_prefix(&self, at: &Places, number: usize) -> Option<&'a [u8]> {
        if at.group_shift == 0 {
            return Some(&[]);
        }
        let group = number >> at.group_shift;
        let end_at = at.ends_at + 2 * group;
        let start = if end_at == at.ends_at { 0 } else { self.short(end_at - 2)? };
        self.bytes.get(at.prefixes_at + start..at.prefixes_at + self.short(end_at)?)
    }

    /// Start and end of entry `number`, which exists, in the payload.
    #[inline(always)]
    fn span(&self, at: &Places, number: usize) -> Option<(usize, usize)> {
        let is_last = number + 1 == at.count;
        let (start, next) = if at.is_wide {
            let offset_at = at.offsets_at + 4 * number;
            let next = if is_last { 0 } else { self.number(offset_at + 4, 4)? as usize };
            (self.number(offset_at, 4)? as usize, next)
        } else {
            let offset_at = at.offsets_at + 2 * number;
            (self.short(offset_at)?, if is_last { 0 } else { self.short(offset_at + 2)? })
        };
        Some((at.entries_at + start, if is_last { self.bytes.len() } else { at.entries_at + next }))
    }

    /// End of entry `number`, which exists, in the payload.
    #[inline(always)]
    fn end(&self, at: &Places, number: usize) -> Option<usize> {
        let next = number + 1;
        if next == at.count {
            return Some(self.bytes.len());
        }
        let offset = match at.is_wide {
            true => self.number(at.offsets_at + 4 * next, 4)? as usize,
            false => self.short(at.offsets_at + 2 * next)?,
        };
        Some(at.entries_at + offset)
    }

    /// Entry `number`; `None` if it is damaged or past the end.
    #[inline(always)]
    fn located(&self, at: &Places, number: usize) -> Option<LocatedEntry<'a>> {
        if number >= at.count {
            return None;
        }
        let (start, end) = self.span(at, number)?;
        self.located_in(at, start..end)
    }

    /// The entry that takes up `span` of the payload; `None` if it is damaged.
    #[inline(always)]
    fn located_in(&self, at: &Places, span: Range<usize>) -> Option<LocatedEntry<'a>> {
        let Range { start, end } = span;
        let suffix_at = start + at.entry_head_bytes;
        let suffix_bytes = self.suffix_bytes(at, suffix_at)?;
        // If `end` is wrong, the bytes before the suffix may lie beyond it; then the suffix does
        // too, and this is `None`.
        let (suffix, value) = self.bytes.get(suffix_at..end)?.split_at_checked(suffix_bytes)?;
        Some(LocatedEntry { start, suffix, value })
    }

    /// Length of the suffix that starts at `suffix_at`: stored before it, unless all have the same.
    #[inline(always)]
    fn suffix_bytes(&self, at: &Places, suffix_at: usize) -> Option<usize> {
        Some(match at.suffix_width {
            0 => at.suffix_bytes,
            1 => usize::from(*self.bytes.get(suffix_at - 1)?),
            _ => self.short(suffix_at - 2)?,
        })
    }

    #[inline(always)]
    fn seq(&self, at: &Places, entry: &LocatedEntry<'a>) -> Option<SeqNo> {
        self.seq_at(at, entry.start)
    }

    /// The sequence number of the entry that starts at `start`.
    #[inline(always)]
    fn seq_at(&self, at: &Places, start: usize) -> Option<SeqNo> {
        if at.seq_width == 0 {
            return Some(SeqNo(at.base_seq));
        }
        let seq = at.base_seq.checked_add(self.number(start, at.seq_width)?)?;
        (seq <= SeqNo::MAX.0).then_some(SeqNo(seq))
    }

    #[inline(always)]
    fn parts(&self, at: &Places, entry: &LocatedEntry<'a>) -> Option<EntryParts<'a>> {
        let value_start = entry.start + at.entry_head_bytes + entry.suffix.len();
        let (seq, kind) = (self.seq(at, entry)?, self.kind_of(at, entry)?);
        Some(EntryParts { seq, kind, value: entry.value, value_start })
    }

    #[inline(always)]
    fn kind_of(&self, at: &Places, entry: &LocatedEntry<'a>) -> Option<EntryKind> {
        self.kind_at(at, entry.start)
    }

    /// The kind of the entry that starts at `start`.
    #[inline(always)]
    fn kind_at(&self, at: &Places, start: usize) -> Option<EntryKind> {
        EntryKind::from_byte(match at.kind {
            0 => *self.bytes.get(start + at.seq_width)?,
            kind => kind,
        })
    }

    /// The newest version of exactly `key` that is not newer than `seq`.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: SeqNo, tag: u16) -> Result<Option<EntryParts<'a>>, String> {
        let width = self.tag_width();
        if width == 0 {
            return self.find_by_key(key, seq);
        }
        let tags = Tags { bytes: self.bytes, start: HEADER_BYTES, count: self.len(), wide: width == 2 };
        // Outside the loop, so that a miss pays only for the tag search.
        let Some(mut number) = tags.find(tag, 0) else {
            return Ok(None);
        };
        loop {
            // Versions are in order, newest first: the first one that is old enough is the answer.
            match self.matched(number, key, seq) {
                Some(None) => {}
                Some(found) => return Ok(found),
                None => return Err(malformed(number)),
            }
            match tags.find(tag, number + 1) {
                Some(next) => number = next,
                None => return Ok(None),
            }
        }
    }

    /// Prefetches the first entry with this tag: key and value.
    #[inline]
    pub(super) fn prefetch_found(&self, tag: u16) {
        let width = self.tag_width();
        let tags = Tags { bytes: self.bytes, start: HEADER_BYTES, count: self.len(), wide: width == 2 };
        if width > 0 {
            if let Some(number) = tags.find(tag, 0) {
                if let Some(at) = self.places() {
                    if let Some((start, end)) = self.span(&at, number) {
                        // The further lines of a long value are loaded by the hardware prefetcher.
                        for line in (start..end).step_by(64).take(3) {
                            prefetch_line(self.bytes, line);
                        }
                        prefetch_line(self.bytes, end.saturating_sub(1));
                    }
                }
            }
        }
    }

    /// Entry `number` if it has `key` and is not newer than `seq`; `None` if it is damaged.
    #[inline(always)]
    fn matched(&self, number: usize, key: &[u8], seq: SeqNo) -> Option<Option<EntryParts<'a>>> {
        let at = self.places()?;
        let entry = self.located(&at, number)?;
        // While the key is loaded: prefetches the value's end, which may be on another line.
        if let Some(last) = entry.value.last() {
            prefetch_address(last);
        }
        if !is_of(key, self.common(&at)?, self.group_prefix(&at, number)?, entry.suffix)
            || self.seq(&at, &entry)? > seq
        {
            return Some(None);
        }
        self.parts(&at, &entry).map(Some)
    }

    fn find_by_key(&self, key: &[u8], seq: SeqNo) -> Result<Option<EntryParts<'a>>, String> {
        let number = self.lower_bound(key, seq)?;
        if number == self.len() {
            return Ok(None);
        }
        self.matched(number, key, seq).ok_or_else(|| malformed(number))
    }

    /// Entry `number`, with its key appended to `keys`.
    pub(super) fn append(&self, number: usize, keys: &mut Vec<u8>) -> Result<EntryParts<'a>, String> {
        let mut assemble = || {
            let at = self.places()?;
            let entry = self.located(&at, number)?;
            keys.extend_from_slice(self.common(&at)?);
            keys.extend_from_slice(self.group_prefix(&at, number)?);
            keys.extend_from_slice(entry.suffix);
            self.parts(&at, &entry)
        };
        assemble().ok_or_else(|| malformed(number))
    }

    pub(super) fn tag_agrees(&self, number: usize, tag: u16) -> bool {
        let width = self.tag_width();
        let found = self.number(HEADER_BYTES + number * width, width);
        width == 0 || found == MASKS.get(width).map(|mask| u64::from(tag) & mask)
    }

    /// Checks the structure: offsets and group prefixes ascend, entries fit, no key is longer than
    /// keys may be.
    pub(super) fn check(&self) -> Result<(), String> {
        let at = self.places().ok_or_else(|| wrong_header(self.bytes))?;
        let mut expected = at.entries_at;
        for number in 0..at.count {
            let (start, end) = self.span(&at, number).ok_or_else(|| malformed(number))?;
            if start != expected {
                return Err(format!("entry {number} does not start where the one before it ends"));
            }
            let entry = self.located(&at, number).ok_or_else(|| malformed(number))?;
            let beginning = self.common(&at).zip(self.group_prefix(&at, number));
            let (Some(_), Some((common, prefix))) = (self.parts(&at, &entry), beginning) else {
                return Err(malformed(number));
            };
            let key_bytes = common.len() + prefix.len() + entry.suffix.len();
            if key_bytes > MAX_KEY_BYTES {
                return Err(format!("entry {number} has a key of {key_bytes} bytes"));
            }
            expected = end;
        }
        if expected != self.bytes.len() {
            return Err(format!("entries end at {expected} of {} bytes", self.bytes.len()));
        }
        if at.suffix_width > 0 && at.suffix_bytes > 0 {
            return Err("suffixes have a length each and one for all".to_owned());
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> &'static str {
        match self.tag_width() {
            0 => "untagged",
            1 => "tagged",
            _ => "tagged-2",
        }
    }
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
