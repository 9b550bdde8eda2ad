//! Handles: places of blocks, stored and in memory.
//!
//! ```text
//! stored   offset u64, bytes u32, entries u32                    16 bytes
//! held     offset from the partition's first block u32,
//!          bytes u16, entries u16                                 8 bytes
//! ```
//!
//! A partition with a block that does not fit the short form keeps the stored form.

/// Length of a stored [`Handle`].
pub(super) const HANDLE_BYTES: usize = 16;

/// Place of a block and its number of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    /// Length of the whole frame.
    pub(crate) bytes: u32,
    pub(crate) entries: u32,
}

impl Handle {
    pub(super) fn encode(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [o0, o1, o2, o3, o4, o5, o6, o7, b0, b1, b2, b3, e0, e1, e2, e3] = bytes else {
            return None;
        };
        Some(Self {
            offset: u64::from_le_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]),
            bytes: u32::from_le_bytes([*b0, *b1, *b2, *b3]),
            entries: u32::from_le_bytes([*e0, *e1, *e2, *e3]),
        })
    }

    /// Whether a partition of this length can have as many separators: each has a stored handle.
    pub(super) fn can_list_its_separators(self) -> bool {
        self.entries > 0 && u64::from(self.entries) * HANDLE_BYTES as u64 <= u64::from(self.bytes)
    }

    /// End of the block, exclusive. Handles are checked to lie in their section before they are
    /// used.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

/// The handles of a partition, in the short form if all fit.
#[derive(Debug)]
pub(super) enum Handles {
    Short { base: u64, blocks: Box<[Short]> },
    Full(Box<[Handle]>),
}

/// A handle relative to a base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    offset: u32,
    bytes: u16,
    entries: u16,
}

impl Handles {
    pub(super) fn new(handles: &[Handle]) -> Self {
        let base = handles.first().map_or(0, |first| first.offset);
        let short = |handle: &Handle| {
            Some(Short {
                offset: u32::try_from(handle.offset.checked_sub(base)?).ok()?,
                bytes: u16::try_from(handle.bytes).ok()?,
                entries: u16::try_from(handle.entries).ok()?,
            })
        };
        match handles.iter().map(short).collect() {
            Some(blocks) => Self::Short { base, blocks },
            None => Self::Full(handles.into()),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<Handle> {
        match self {
            Self::Short { base, blocks } => blocks.get(number).map(|short| Handle {
                offset: base + u64::from(short.offset),
                bytes: u32::from(short.bytes),
                entries: u32::from(short.entries),
            }),
            Self::Full(blocks) => blocks.get(number).copied(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Short { blocks, .. } => size_of_val(&**blocks),
            Self::Full(blocks) => size_of_val(&**blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_short_or_not() {
        let short: Vec<Handle> =
            (0..9).map(|i| Handle { offset: (1 << 40) + i * 4_096, bytes: 4_000, entries: 7 }).collect();
        let largest = Handle { offset: u64::MAX, bytes: u32::MAX, entries: u32::MAX };
        let far = Handle { offset: (1 << 40) + (1 << 32), bytes: 1, entries: 1 };
        for (odd, bytes_each) in [(None, 8), (Some(largest), 16), (Some(far), 16)] {
            let all: Vec<Handle> = short.iter().copied().chain(odd).collect();
            let held = Handles::new(&all);
            assert_eq!(held.memory_bytes(), bytes_each * all.len());
            let found: Vec<Handle> = (0..).map_while(|number| held.get(number)).collect();
            assert_eq!(found, all);
            assert_eq!(held.get(all.len()), None);
        }
        assert_eq!(Handle::decode(&largest.encode()), Some(largest));
        assert_eq!(Handle::decode(&largest.encode()[1..]), None);
        assert_eq!(Handles::new(&[]).get(0), None);
    }

    #[test]
    fn a_partition_has_room_for_its_separators() {
        let partition = |bytes, entries| Handle { offset: 0, bytes, entries };
        assert!(partition(32, 2).can_list_its_separators() && partition(16, 1).can_list_its_separators());
        assert!(!partition(31, 2).can_list_its_separators(), "bytes for one");
        assert!(!partition(31, u32::MAX).can_list_its_separators());
        assert!(!partition(32, 0).can_list_its_separators(), "a partition without separators");
    }
}
