//! Entry kinds: the meaning of one stored version of a key.
//!
//! The byte values are part of the file formats: never reuse one.

/// The meaning of a stored entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// The value is the payload.
    Put = 1,
    /// The key is deleted.
    Delete = 2,
    /// All keys from this key up to the payload (exclusive) are deleted. Stored in the
    /// range-tombstone section.
    RangeDelete = 3,
    /// An operand of a merge operator ([`crate::Operand`]). The operator makes the value of the key
    /// from it, the operands below it and the newest put below those.
    Merge = 4,
    /// A put whose long value is stored elsewhere; the payload is its location.
    ValueRef = 5,
    /// An expiry time, then the value (reserved).
    PutWithExpiry = 6,
}

impl EntryKind {
    /// The kind of a stored byte; `None` for an unknown one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Put,
            2 => Self::Delete,
            3 => Self::RangeDelete,
            4 => Self::Merge,
            5 => Self::ValueRef,
            6 => Self::PutWithExpiry,
            _ => return None,
        })
    }

    /// The byte that is stored.
    pub fn as_byte(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stored_bytes_are_kinds() {
        let known: Vec<u8> = (0..=255).filter(|byte| EntryKind::from_byte(*byte).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 5, 6]);
        for byte in known {
            assert_eq!(EntryKind::from_byte(byte).map(EntryKind::as_byte), Some(byte));
        }
    }
}
