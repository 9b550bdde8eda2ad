//! Prefix extractors: the part of a key that stands for all keys that begin with it.
//!
//! A table that was written with an extractor has the digests of its keys' prefixes in its filter.
//! A scan may ask that filter only if every key of its range has one and the same prefix:
//! [`Prefix::of_range`] is that rule, and the only place of it.

use std::fmt;
use std::str::FromStr;

use crate::MAX_KEY_BYTES;

/// A prefix extractor. It is data: a table records its own one.
///
/// Its text form is `fixed:8`, `delimited:3a` (the byte in hex) or `capped:8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Prefix {
    /// The first bytes of the key, this many and at least 1. Shorter keys have no prefix.
    Fixed(u16),
    /// The bytes up to the first one of this value, and that one. Keys without it have no prefix.
    Delimited(u8),
    /// The first bytes of the key, at most this many (at least 1). Shorter keys are their own
    /// prefix.
    Capped(u16),
}

impl Prefix {
    /// Whether the extractor can be used.
    ///
    /// # Errors
    /// A phrase that names the wrong number.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::Fixed(0) | Self::Capped(0) => {
                Err(format!("a prefix has 1 to {MAX_KEY_BYTES} bytes, not 0 ({self})"))
            }
            _ => Ok(()),
        }
    }

    /// The prefix of `key`; `None` if it has none.
    #[inline]
    pub fn of(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Fixed(bytes) => key.get(..usize::from(bytes)),
            Self::Delimited(byte) => {
                let end = key.iter().position(|&found| found == byte)?;
                key.get(..=end)
            }
            Self::Capped(bytes) => key.get(..key.len().min(usize::from(bytes))),
        }
    }

    /// The prefix that every key of `[lower, upper)` has; `None` if their prefixes may differ or be
    /// missing. An `upper` of `None` is no end.
    pub fn of_range<'k>(self, lower: &'k [u8], upper: Option<&[u8]>) -> Option<&'k [u8]> {
        let prefix = match self {
            // A shorter bound fixes no prefix of this length.
            Self::Fixed(bytes) | Self::Capped(bytes) => lower.get(..usize::from(bytes))?,
            Self::Delimited(_) => self.of(lower)?,
        };
        debug_assert!(!prefix.is_empty(), "an extractor of no bytes");
        // No key of the range is smaller than the prefix. So all begin with it if none is as large
        // as the smallest key after those that do: the prefix with its last byte that is not 0xff
        // increased, and cut off behind it.
        let Some(last) = prefix.iter().rposition(|&byte| byte != 0xff) else { return Some(prefix) };
        let beyond = prefix[..last].iter().copied().chain([prefix[last] + 1]);
        let ends = upper.is_some_and(|upper| upper.iter().copied().le(beyond));
        ends.then_some(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "fixed:{bytes}"),
            Self::Delimited(byte) => write!(f, "delimited:{byte:02x}"),
            Self::Capped(bytes) => write!(f, "capped:{bytes}"),
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("{text:?} is no prefix extractor; these are: fixed:BYTES, delimited:HH, capped:BYTES");
        let (kind, argument) = text.split_once(':').ok_or_else(unknown)?;
        // `from_str_radix` takes a sign.
        if argument.is_empty() || !argument.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let prefix = match kind {
            "fixed" => Self::Fixed(argument.parse().map_err(|_| unknown())?),
            "capped" => Self::Capped(argument.parse().map_err(|_| unknown())?),
            "delimited" if argument.len() == 2 => {
                Self::Delimited(u8::from_str_radix(argument, 16).map_err(|_| unknown())?)
            }
            _ => return Err(unknown()),
        };
        prefix.check()?;
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys of at most four bytes of a small alphabet, with the largest byte in it.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        let mut begin = 0;
        for _ in 0..4 {
            let longer: Vec<Vec<u8>> = keys[begin..]
                .iter()
                .flat_map(|key| [0, b'/', b'a', 0xff].map(|byte| [&key[..], &[byte]].concat()))
                .collect();
            begin = keys.len();
            keys.extend(longer);
        }
        keys.sort();
        keys
    }

    fn extractors() -> Vec<Prefix> {
        let lengths = 1..=3;
        let mut all: Vec<_> = lengths.clone().map(Prefix::Fixed).collect();
        all.extend(lengths.map(Prefix::Capped));
        all.extend([0, b'/', 0xff].map(Prefix::Delimited));
        all
    }

    /// The smallest key after those that begin with `prefix`.
    fn beyond(prefix: &[u8]) -> Option<Vec<u8>> {
        let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
        Some([&prefix[..last], &[prefix[last] + 1]].concat())
    }

    #[test]
    fn an_extractor_takes_the_stated_part_of_a_key() {
        let of = |prefix: Prefix, key: &'static str| {
            prefix.of(key.as_bytes()).map(|p| p.escape_ascii().to_string())
        };
        assert_eq!(of(Prefix::Fixed(3), "abcd").as_deref(), Some("abc"));
        assert_eq!(of(Prefix::Fixed(3), "abc").as_deref(), Some("abc"));
        assert_eq!(of(Prefix::Fixed(3), "ab"), None);
        assert_eq!(of(Prefix::Capped(3), "abcd").as_deref(), Some("abc"));
        assert_eq!(of(Prefix::Capped(3), "ab").as_deref(), Some("ab"));
        assert_eq!(of(Prefix::Delimited(b':'), "a:b:c").as_deref(), Some("a:"));
        assert_eq!(of(Prefix::Delimited(b':'), ":").as_deref(), Some(":"));
        assert_eq!(of(Prefix::Delimited(b':'), "abc"), None);
    }

    #[test]
    fn every_key_of_a_range_that_fixes_a_prefix_has_that_prefix() {
        let keys = keys();
        let (mut fixed, mut open) = (0, 0);
        for extractor in extractors() {
            for (number, lower) in keys.iter().enumerate() {
                let uppers = keys[number..].iter().step_by(7).cloned().map(Some);
                for upper in uppers.chain([None, beyond(lower)]) {
                    let inside =
                        |key: &&Vec<u8>| *key >= lower && upper.as_ref().is_none_or(|upper| *key < upper);
                    let Some(prefix) = extractor.of_range(lower, upper.as_deref()) else {
                        open += 1;
                        continue;
                    };
                    fixed += 1;
                    for key in keys.iter().filter(inside) {
                        assert_eq!(
                            extractor.of(key),
                            Some(prefix),
                            "{extractor} {lower:?}..{upper:?}, {key:?}"
                        );
                    }
                }
            }
        }
        assert!(fixed > 1_000 && open > 1_000, "{fixed} ranges fix a prefix, {open} do not");
    }

    #[test]
    fn the_keys_of_a_prefix_fix_it_as_soon_as_it_is_whole() {
        for extractor in extractors() {
            for asked in keys() {
                let whole = match extractor {
                    Prefix::Fixed(bytes) | Prefix::Capped(bytes) => asked.len() >= usize::from(bytes),
                    Prefix::Delimited(byte) => asked.contains(&byte),
                };
                let fixed = extractor.of_range(&asked, beyond(&asked).as_deref());
                let expected = extractor.of(&asked).filter(|_| whole);
                assert_eq!(fixed, expected, "{extractor}, the keys that begin with {asked:?}");
            }
        }
    }

    #[test]
    fn text_forms_are_read_back_and_others_refused() {
        for extractor in extractors() {
            assert_eq!(extractor.to_string().parse(), Ok(extractor));
        }
        assert_eq!("delimited:3A".parse(), Ok(Prefix::Delimited(b':')));
        for wrong in ["", "fixed", "fixed:", "fixed:0", "capped:0", "fixed:65536", "fixed:+1", "delimited:3"]
        {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
        assert!("delimited:+3".parse::<Prefix>().is_err() && "first:3".parse::<Prefix>().is_err());
    }
}
