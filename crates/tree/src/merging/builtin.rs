//! The merge operators that come with the engine.
//!
//! Their names begin with `shamba.` and say everything about them, so a database that records one
//! needs no code to be opened with.

use std::sync::Arc;

use super::operator::{AssociativeMerge, MergeOperator, MergeResult};

/// The built-in operator of a recorded name.
pub fn named(name: &str) -> Option<Arc<dyn MergeOperator>> {
    Some(match name {
        "shamba.add-u64" => Arc::new(AddU64),
        "shamba.add-i64" => Arc::new(AddI64),
        "shamba.max" => Arc::new(Max),
        "shamba.min" => Arc::new(Min),
        "shamba.set-bit" => Arc::new(SetBit),
        _ => Arc::new(Append::of_name(name)?),
    })
}

/// The names of the built-in operators, for messages and help; that of [`Append`] with a comma.
pub const NAMES: [&str; 6] =
    ["shamba.add-u64", "shamba.add-i64", "shamba.max", "shamba.min", "shamba.set-bit", "shamba.append:2c"];

/// Adds unsigned numbers of 64 bits, little-endian; stops at the largest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddU64;

/// Adds signed numbers of 64 bits, little-endian; stops at the smallest and the largest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddI64;

/// Keeps the largest operand, compared bytewise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

/// Keeps the smallest operand, compared bytewise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Min;

/// Sets bits: an operand is the number of a bit, a `u32` in little-endian; bit 0 is the lowest one
/// of the first byte. Values grow as needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetBit;

/// Appends each operand to the value, after a separator unless there is no value yet.
#[derive(Clone, Debug)]
pub struct Append {
    separator: Vec<u8>,
    name: String,
}

fn number<const N: usize>(bytes: &[u8]) -> MergeResult<[u8; N]> {
    bytes.try_into().map_err(|_| format!("a number has {N} bytes, not {}", bytes.len()).into())
}

impl AssociativeMerge for AddU64 {
    fn name(&self) -> &str {
        "shamba.add-u64"
    }

    fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
        number::<8>(operand).map(drop)
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        let (older, newer) = (u64::from_le_bytes(number(older)?), u64::from_le_bytes(number(newer)?));
        Ok(older.saturating_add(newer).to_le_bytes().to_vec())
    }
}

/// Several additions as one: the distance that they go, and the bounds between which they end.
///
/// Where a sum stops at the range of `i64` on the way, the additions are not associative: 1 and -1
/// added to the largest number give less than 0 does. So the bounds are part of what is combined.
struct Additions {
    distance: i128,
    lowest: i64,
    highest: i64,
}

impl Additions {
    /// Distance and bounds.
    const BYTES: usize = size_of::<i128>() + 2 * size_of::<i64>();

    /// An operand: a number, or combined ones.
    fn decode(operand: &[u8]) -> MergeResult<Self> {
        if operand.len() != Self::BYTES {
            let distance = i64::from_le_bytes(number(operand)?);
            return Ok(Self { distance: distance.into(), lowest: i64::MIN, highest: i64::MAX });
        }
        let (distance, bounds) = operand.split_at(size_of::<i128>());
        let (lowest, highest) = bounds.split_at(size_of::<i64>());
        let (lowest, highest) = (i64::from_le_bytes(number(lowest)?), i64::from_le_bytes(number(highest)?));
        Ok(Self { distance: i128::from_le_bytes(number(distance)?), lowest, highest: highest.max(lowest) })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.distance.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.lowest.to_le_bytes());
        bytes.extend_from_slice(&self.highest.to_le_bytes());
        bytes
    }

    fn added_to(&self, number: i64) -> i64 {
        let sum = i128::from(number).saturating_add(self.distance);
        let sum = sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        sum.clamp(self.lowest, self.highest)
    }

    /// These additions, then `newer` ones.
    fn then(&self, newer: &Self) -> Self {
        Self {
            distance: self.distance.saturating_add(newer.distance),
            lowest: newer.added_to(self.lowest),
            highest: newer.added_to(self.highest),
        }
    }
}

impl MergeOperator for AddI64 {
    fn name(&self) -> &str {
        "shamba.add-i64"
    }

    fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
        number::<8>(operand).map(drop)
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let mut sum = base.map_or(Ok(0), |base| number(base).map(i64::from_le_bytes))?;
        for operand in operands {
            sum = Additions::decode(operand)?.added_to(sum);
        }
        Ok(sum.to_le_bytes().to_vec())
    }

    fn combine(&self, _key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        let mut all = Additions { distance: 0, lowest: i64::MIN, highest: i64::MAX };
        for operand in operands {
            all = all.then(&Additions::decode(operand)?);
        }
        Ok(Some(all.encode()))
    }
}

impl AssociativeMerge for Max {
    fn name(&self) -> &str {
        "shamba.max"
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        Ok(older.max(newer).to_vec())
    }
}

impl AssociativeMerge for Min {
    fn name(&self) -> &str {
        "shamba.min"
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        Ok(older.min(newer).to_vec())
    }
}

impl SetBit {
    /// Longest value: that of the largest number of a bit.
    const BYTES_MAX: usize = 32 << 20;
}

impl MergeOperator for SetBit {
    fn name(&self) -> &str {
        "shamba.set-bit"
    }

    fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
        let bit = u32::from_le_bytes(number(operand)?);
        if (bit / 8) as usize >= Self::BYTES_MAX {
            return Err(format!("bit {bit} is beyond a value of {} bytes", Self::BYTES_MAX).into());
        }
        Ok(())
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let mut bits = base.unwrap_or_default().to_vec();
        for list in operands {
            if list.len() % size_of::<u32>() != 0 {
                return Err(format!("numbers of bits in {} bytes: each takes four", list.len()).into());
            }
            for bit in list.chunks_exact(size_of::<u32>()) {
                let bit = u32::from_le_bytes(number(bit)?);
                let (byte, mask) = ((bit / 8) as usize, 1u8 << (bit % 8));
                if byte >= Self::BYTES_MAX {
                    return Err(format!("bit {bit} is beyond a value of {} bytes", Self::BYTES_MAX).into());
                }
                if bits.len() <= byte {
                    bits.resize(byte + 1, 0);
                }
                bits[byte] |= mask;
            }
        }
        Ok(bits)
    }

    /// The numbers of all bits, each once.
    fn combine(&self, _key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        let mut numbers = std::collections::BTreeSet::new();
        for list in operands {
            if list.len() % size_of::<u32>() != 0 {
                return Ok(None);
            }
            for bit in list.chunks_exact(size_of::<u32>()) {
                numbers.insert(u32::from_le_bytes(number(bit)?));
            }
        }
        Ok(Some(numbers.into_iter().flat_map(u32::to_le_bytes).collect()))
    }
}

impl Append {
    /// Appends with `separator` in between; empty: without one.
    pub fn separated_by(separator: impl AsRef<[u8]>) -> Self {
        let separator = separator.as_ref().to_vec();
        let hex: String = separator.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { separator, name: format!("shamba.append:{hex}") }
    }

    /// The operator of a recorded name.
    fn of_name(name: &str) -> Option<Self> {
        let hex = name.strip_prefix("shamba.append:")?;
        if hex.len() % 2 != 0 || !hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let bytes = (0..hex.len()).step_by(2);
        let separator: Option<Vec<u8>> =
            bytes.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
        Some(Self::separated_by(separator?))
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(&self.separator[..]))
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        self.merge(key, None, operands).map(Some)
    }
}
