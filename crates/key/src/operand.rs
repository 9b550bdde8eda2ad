//! Operands of merge operators, in the form in which logs, memtables and tables hold them.
//!
//! ```text
//! flag 1       0: one operand as it was written; 1: several that were combined
//! reach u64    of combined ones only: how far below the entry's sequence number the oldest lies
//! operand      the rest
//! ```
//!
//! The entry of combined operands has the sequence number of the newest of them. A reader that has
//! taken it skips every entry of the key down to the oldest: these are contained already. So an
//! operand counts once, also where a repair finds it both alone and combined.

/// Maximum length of an operand in bytes: an entry with it is no larger than one with the longest
/// key.
pub const MAX_OPERAND_BYTES: usize = 65_535;

/// Flag of an operand as it was written.
const SINGLE: u8 = 0;
/// Flag of combined operands.
const COMBINED: u8 = 1;
/// Length of what precedes combined operands.
const COMBINED_BYTES: usize = 1 + size_of::<u64>();

/// An operand, as a value of an entry of the kind [`crate::EntryKind::Merge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand<'a> {
    /// The distance from the entry's sequence number to that of the oldest operand in it; 0 for an
    /// operand as it was written.
    pub reach: u64,
    /// The bytes that the merge operator is given.
    pub bytes: &'a [u8],
}

impl<'a> Operand<'a> {
    /// Maximum length of the stored form.
    pub const STORED_BYTES_MAX: usize = COMBINED_BYTES + MAX_OPERAND_BYTES;

    /// An operand as it is written.
    pub fn single(bytes: &'a [u8]) -> Self {
        Self { reach: 0, bytes }
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.bytes.len() <= MAX_OPERAND_BYTES, "an operand of {} bytes", self.bytes.len());
        let mut stored = Vec::with_capacity(COMBINED_BYTES + self.bytes.len());
        if self.reach == 0 {
            stored.push(SINGLE);
        } else {
            stored.push(COMBINED);
            stored.extend_from_slice(&self.reach.to_le_bytes());
        }
        stored.extend_from_slice(self.bytes);
        stored
    }

    /// Decodes a stored form.
    ///
    /// # Errors
    /// A phrase that describes the fault.
    pub fn decode(stored: &'a [u8]) -> Result<Self, String> {
        let (reach, bytes) = match stored.split_first() {
            Some((&SINGLE, bytes)) => (0, bytes),
            Some((&COMBINED, rest)) => match rest.split_first_chunk() {
                Some((reach, bytes)) => (u64::from_le_bytes(*reach), bytes),
                None => return Err(format!("combined operands of {} bytes", stored.len())),
            },
            Some((flag, _)) => return Err(format!("operand flag {flag}")),
            None => return Err("an operand without a flag".to_owned()),
        };
        if bytes.len() > MAX_OPERAND_BYTES {
            return Err(format!("an operand of {} bytes", bytes.len()));
        }
        Ok(Self { reach, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_round_trip_and_nothing_else_decodes() {
        for operand in
            [Operand::single(b""), Operand::single(b"\x01abc"), Operand { reach: 1 << 40, bytes: b"x" }]
        {
            assert_eq!(Operand::decode(&operand.encode()), Ok(operand));
        }
        let long = vec![0; Operand::STORED_BYTES_MAX];
        for refused in [&b""[..], b"\x02x", b"\x01\x01\x02\x03", &long] {
            assert!(Operand::decode(refused).is_err(), "{} bytes", refused.len());
        }
        assert_eq!(Operand::decode(&long[..=MAX_OPERAND_BYTES]).map(|operand| operand.reach), Ok(0));
    }
}
