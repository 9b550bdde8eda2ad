//! Entry kinds: the meaning of one stored version of a key.
//!
//! The byte values are part of the file formats: never reuse one.

use crate::Expiry;

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
    /// A put with an expiry time; the payload is the time and the value ([`crate::Expiry`]).
    PutWithExpiry = 6,
    /// A put with an expiry time whose long value is stored elsewhere; the payload is the time and
    /// the location. What is stored there is the payload of a [`Self::PutWithExpiry`].
    ValueRefWithExpiry = 7,
    /// A put whose value is stored in a value file; the payload is the reference to it. In tables
    /// only.
    ValueFileRef = 8,
    /// A put with an expiry time whose value is stored in a value file; the payload is the time and
    /// the reference. What is stored there is the payload of a [`Self::PutWithExpiry`].
    ValueFileRefWithExpiry = 9,
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
            7 => Self::ValueRefWithExpiry,
            8 => Self::ValueFileRef,
            9 => Self::ValueFileRefWithExpiry,
            _ => return None,
        })
    }

    /// The byte that is stored.
    pub fn as_byte(self) -> u8 {
        self as u8
    }

    /// Whether it is a put, with or without an expiry time, wherever its value is.
    #[inline]
    pub fn is_put(self) -> bool {
        matches!(self, Self::Put | Self::PutWithExpiry) || self.is_large()
    }

    /// Whether the payload begins with an expiry time.
    #[inline]
    pub fn has_expiry(self) -> bool {
        matches!(self, Self::PutWithExpiry | Self::ValueRefWithExpiry | Self::ValueFileRefWithExpiry)
    }

    /// Whether the payload has the location of the value instead of the value.
    #[inline]
    pub fn is_large(self) -> bool {
        matches!(self, Self::ValueRef | Self::ValueRefWithExpiry) || self.in_value_file()
    }

    /// Whether the value is stored in a value file.
    #[inline]
    pub fn in_value_file(self) -> bool {
        matches!(self, Self::ValueFileRef | Self::ValueFileRefWithExpiry)
    }

    /// The location of the value in the payload of a large entry.
    #[inline]
    pub fn location(self, payload: &[u8]) -> &[u8] {
        debug_assert!(self.is_large(), "an entry of kind {self:?} holds its value");
        let at = if self.has_expiry() { Expiry::STORED_BYTES } else { 0 };
        payload.get(at..).unwrap_or_default()
    }

    /// The kind of the entry with its value in place of a location.
    #[inline]
    pub fn whole(self) -> Self {
        match self {
            Self::ValueRef | Self::ValueFileRef => Self::Put,
            Self::ValueRefWithExpiry | Self::ValueFileRefWithExpiry => Self::PutWithExpiry,
            other => other,
        }
    }

    /// The kind of an entry with the location of its value in its own file in place of the value.
    #[inline]
    pub fn large(self) -> Self {
        match self {
            Self::Put => Self::ValueRef,
            Self::PutWithExpiry => Self::ValueRefWithExpiry,
            other => other,
        }
    }

    /// The kind of an entry with a reference to a value file in place of the value.
    #[inline]
    pub fn separated(self) -> Self {
        match self {
            Self::Put => Self::ValueFileRef,
            Self::PutWithExpiry => Self::ValueFileRefWithExpiry,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stored_bytes_are_kinds() {
        let known: Vec<u8> = (0..=255).filter(|byte| EntryKind::from_byte(*byte).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        for byte in known {
            let kind = EntryKind::from_byte(byte).expect("a known kind");
            assert_eq!(kind.as_byte(), byte);
            assert_eq!(kind.whole().is_put(), kind.is_put());
            assert_eq!(kind.whole().has_expiry(), kind.has_expiry());
            assert!(!kind.whole().is_large());
            assert_eq!(kind.whole().large().is_large(), kind.is_put(), "{kind:?}");
            assert_eq!(kind.whole().separated().in_value_file(), kind.is_put(), "{kind:?}");
            assert_eq!(kind.whole().separated().whole(), kind.whole());
            assert_eq!(kind.whole().separated().has_expiry(), kind.has_expiry());
        }
    }
}
