//! Encoding of numbers and byte strings inside records: fixed-width little-endian, varints, length
//! prefixes.
//!
//! Decoding checks every length against the remaining input before it allocates, indexes or casts.
//! Malformed input causes an error, never a panic or a large allocation.

/// A decoded value, or the reason for the failure as a phrase for an error message.
pub type Decoded<T> = Result<T, String>;

/// Appends `value` as a varint: groups of seven bits, low groups first. The top bit of a byte is
/// set if more bytes follow.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A cursor that decodes values from the front of a byte string.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Creates a decoder at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes were consumed.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that were not consumed yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `bytes` bytes.
    pub fn take(&mut self, bytes: usize) -> Decoded<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(format!("{bytes} bytes wanted, {} left", self.rest.len()));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(format!("{N} bytes wanted, {} left", self.rest.len()));
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next variable-length integer.
    pub fn varint(&mut self) -> Decoded<u64> {
        read_varint(|| self.u8())
    }

    /// The next variable-length integer, which must fit in 32 bits.
    pub fn varint_u32(&mut self) -> Decoded<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| format!("{value} does not fit in 32 bits"))
    }

    /// The next length-prefixed byte string.
    pub fn prefixed(&mut self) -> Decoded<&'a [u8]> {
        let bytes = self.varint()?;
        // A length above the address space is also above the remaining input, so `take` rejects it.
        self.take(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The next length-prefixed string, which must be UTF-8.
    pub fn text(&mut self) -> Decoded<&'a str> {
        std::str::from_utf8(self.prefixed()?).map_err(|error| format!("text that is not UTF-8: {error}"))
    }

    /// Succeeds if no bytes are left.
    pub fn finish(self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("{} bytes too many", self.rest.len())) }
    }
}

/// Decodes a varint from the bytes that `next` returns.
pub fn read_varint<E: From<String>>(mut next: impl FnMut() -> Result<u8, E>) -> Result<u64, E> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a varint of more than 64 bits".to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_what_does_not_fit() {
        for value in [0, 1, 0x7f, 0x80, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(decoder.varint(), Ok(value));
            assert!(decoder.is_empty());
        }
        assert!(Decoder::new(&[0xff; 10]).varint().is_err());
        assert!(Decoder::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]).varint().is_err());
        assert!(Decoder::new(&[0x80]).varint().is_err(), "cut short");
        assert!(Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint_u32().is_err());
    }

    #[test]
    fn a_length_beyond_the_input_is_an_error() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::MAX);
        bytes.extend_from_slice(b"abc");
        assert!(Decoder::new(&bytes).prefixed().is_err());
        let mut bytes = Vec::new();
        put_prefixed(&mut bytes, b"abc");
        assert_eq!(Decoder::new(&bytes).prefixed(), Ok(&b"abc"[..]));
        assert!(Decoder::new(&bytes[..3]).prefixed().is_err());
    }
}
