//! Keys from numbers, in five shapes, each a bijection.
//!
//! A shape turns a number (the *index*) into a key of exactly the requested size, and never two
//! numbers into the same key. Existing items have even indices, absent ones odd: item `i` is index
//! `2 i`, and index `2 i + 1` is a key that was never written but lies between written ones. So a
//! miss costs as much as with real data (key ranges of tables do not exclude it), and no set of
//! keys has to be stored.
//!
//! | shape | example | order |
//! |---|---|---|
//! | `random` | bytes without a pattern | unrelated to indices |
//! | `sequential` | `0000000000002468` | that of indices |
//! | `path` | `/assets/bin/cache/data/etc/file-name-of-00002468` | that of indices, in parts |
//! | `url` | `https://www.site-0815.net/blog/file-name-of-00002468` | by one of 4,096 hosts |
//! | `prefix-time` | `2af:00000000000000002468` | by one of 1,024 prefixes, then by time |

use std::fmt;
use std::str::FromStr;

use crate::mix::{mix, mix_bits, mix2};

/// Shape of keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyShape {
    /// Bytes without a pattern.
    Random,
    /// Zero-padded decimal numbers.
    Sequential,
    /// File paths with long shared prefixes.
    Path,
    /// Page addresses: a long common start, then one of a few thousand hosts.
    Url,
    /// One of 1,024 prefixes (a device, a user) and an increasing time, as in event stores.
    PrefixTime,
}

impl KeyShape {
    /// Every shape.
    pub const ALL: [Self; 5] = [Self::Random, Self::Sequential, Self::Path, Self::Url, Self::PrefixTime];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Path => "path",
            Self::Url => "url",
            Self::PrefixTime => "prefix-time",
        }
    }

    /// Default key size: 16 for the plain shapes, enough for the pattern in the others.
    pub fn default_key_size(self) -> usize {
        match self {
            Self::Random | Self::Sequential => 16,
            Self::Path => 56,
            Self::Url => 72,
            Self::PrefixTime => 24,
        }
    }
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyShape {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|shape| shape.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown key shape {name:?} (known: {known})")
        })
    }
}

/// Names of directories.
const DIRECTORIES: [&str; 16] = [
    "assets", "bin", "cache", "data", "etc", "fonts", "include", "java", "lib", "modules", "network", "perl",
    "share", "tests", "usr", "www",
];
const SECTIONS: [&str; 8] = ["article", "blog", "docs", "item", "news", "profile", "search", "video"];
const DOMAINS: [&str; 8] = ["com", "org", "net", "io", "de", "co.uk", "dev", "info"];
const PREFIXES: u64 = 1024;

/// Generator of keys of one shape and size. Cheap to copy; stores no keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    shape: KeyShape,
    size: usize,
    /// Minimum number of decimal digits of an index in the shapes that print it.
    digits: usize,
}

impl Keys {
    /// Keys of `shape`, each of `size` bytes, for indices below `indices`.
    ///
    /// # Errors
    /// A message that names both, when that many distinct keys do not fit into `size` bytes.
    pub fn new(shape: KeyShape, size: usize, indices: u64) -> Result<Self, String> {
        let keys = Self { shape, size, digits: digits(indices.saturating_sub(1)) };
        keys.check_fits(indices).map(|()| keys)
    }

    /// Checks that keys for indices below `indices` are distinct, although it was made for fewer.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn check_fits(&self, indices: u64) -> Result<(), String> {
        let Self { shape, size, .. } = *self;
        let last = indices.saturating_sub(1);
        let digits = digits(last);
        let least = match shape {
            KeyShape::Random => (64 - last.leading_zeros()).div_ceil(8).max(1) as usize,
            KeyShape::Sequential => digits,
            KeyShape::Path | KeyShape::Url => digits + 1,
            // Three characters of prefix, a separator, and the time.
            KeyShape::PrefixTime => 4 + digits,
        };
        if size < least {
            return Err(format!(
                "{indices} distinct keys of shape {shape} need {least} bytes each, not {size}"
            ));
        }
        if size > 65_535 {
            return Err(format!("keys may have at most 65,535 bytes, not {size}"));
        }
        Ok(())
    }

    /// Shape of the keys.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// Size of every key in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Overwrites `key` with the key of item `item`, which a fill wrote.
    pub fn existing(&self, item: u64, key: &mut Vec<u8>) {
        self.write(item.wrapping_mul(2), key);
    }

    /// Overwrites `key` with a key that no fill writes and that lies between written ones.
    pub fn absent(&self, item: u64, key: &mut Vec<u8>) {
        self.write(item.wrapping_mul(2) | 1, key);
    }

    fn write(&self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        match self.shape {
            KeyShape::Random => self.random(index, key),
            KeyShape::Sequential => push_decimal(key, index, self.size),
            KeyShape::Path => self.path(index, key),
            KeyShape::Url => self.url(index, key),
            KeyShape::PrefixTime => self.prefix_time(index, key),
        }
        debug_assert_eq!(key.len(), self.size);
    }

    fn random(&self, index: u64, key: &mut Vec<u8>) {
        let head_bytes = self.size.min(8);
        let head = mix_bits(index, 8 * head_bytes as u32);
        key.extend_from_slice(&head.to_be_bytes()[8 - head_bytes..]);
        // The first eight bytes alone distinguish keys. The other bytes are a function of them, so
        // the order depends on the first eight bytes alone.
        let mut rest = head;
        while key.len() < self.size {
            rest = mix(rest.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let take = (self.size - key.len()).min(8);
            key.extend_from_slice(&rest.to_le_bytes()[..take]);
        }
    }

    /// Decimal digits of `index` in the shapes that print it.
    fn width(&self, index: u64) -> usize {
        self.digits.max(digits(index))
    }

    /// Directories from the upper digits of the index, then a file name that ends in the whole
    /// index.
    fn path(&self, index: u64, key: &mut Vec<u8>) {
        let tail = self.width(index) + 1;
        // A directory has 64 files (present and absent). Each directory above has 16
        // subdirectories.
        for shift in [22, 18, 14, 10, 6] {
            let name = DIRECTORIES[(index >> shift) as usize % DIRECTORIES.len()];
            if key.len() + 1 + name.len() + tail > self.size {
                break;
            }
            key.push(b'/');
            key.extend_from_slice(name.as_bytes());
        }
        self.finish(index, b"/", key);
    }

    fn url(&self, index: u64, key: &mut Vec<u8>) {
        let host = mix(index >> 1) % 4096;
        let domain = DOMAINS[(host % 8) as usize];
        let site = format!("https://www.site-{host:04}.{domain}");
        let section = SECTIONS[(mix2(index >> 1, 5) % 8) as usize];
        for (separator, part) in [("", site.as_str()), ("/", section)] {
            if key.len() + separator.len() + part.len() + self.width(index) < self.size {
                key.extend_from_slice(separator.as_bytes());
                key.extend_from_slice(part.as_bytes());
            }
        }
        self.finish(index, b"/", key);
    }

    /// A separator, letters up to the size, and the index in decimal digits.
    fn finish(&self, index: u64, separator: &[u8], key: &mut Vec<u8>) {
        key.extend_from_slice(separator);
        let width = self.width(index);
        let letters = self.size - width - key.len();
        key.extend(b"file-name-of-some-length-".iter().cycle().take(letters));
        push_decimal(key, index, width);
    }

    fn prefix_time(&self, index: u64, key: &mut Vec<u8>) {
        let (item, absent) = (index >> 1, index & 1);
        // Successive items rotate through the prefixes, so they arrive by time and are ordered by
        // prefix.
        let prefix = mix_bits(item % PREFIXES, 10);
        let time = (item / PREFIXES) * 2 + absent;
        let width = self.size - 4;
        for shift in [8, 4, 0] {
            key.push(b"0123456789abcdef"[(prefix >> shift) as usize & 15]);
        }
        key.push(b':');
        push_decimal(key, time, width);
    }
}

/// Number of decimal digits.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// `number` in decimal, zero-padded to exactly `width`.
fn push_decimal(key: &mut Vec<u8>, number: u64, width: usize) {
    let start = key.len();
    key.resize(start + width, b'0');
    let mut rest = number;
    for digit in key[start..].iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    debug_assert_eq!(rest, 0, "{number} has more than {width} digits");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_of_more_digits_differ_from_all_others() {
        for shape in [KeyShape::Path, KeyShape::Url] {
            let size = shape.default_key_size();
            let keys = Keys::new(shape, size, 600).expect("fits");
            keys.check_fits(20_000).expect("fits");
            let (mut seen, mut key) = (HashSet::new(), Vec::new());
            for item in 0..10_000 {
                keys.existing(item, &mut key);
                assert!(seen.insert(key.clone()) && key.len() == size, "{shape}: {}", key.escape_ascii());
            }
        }
    }

    fn all(shape: KeyShape, size: usize, items: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let keys = Keys::new(shape, size, 2 * items).expect("fits");
        let make = |absent: bool| {
            (0..items)
                .map(|item| {
                    let mut key = Vec::new();
                    if absent {
                        keys.absent(item, &mut key)
                    } else {
                        keys.existing(item, &mut key)
                    }
                    key
                })
                .collect::<Vec<_>>()
        };
        (make(false), make(true))
    }

    #[test]
    fn no_two_indices_share_a_key_and_sizes_hold() {
        for shape in KeyShape::ALL {
            for size in [9, 10, 16, 17, 24, 33, 56, 72, 200] {
                let (existing, absent) = all(shape, size, 20_000);
                let mut seen = HashSet::new();
                for key in existing.iter().chain(&absent) {
                    assert_eq!(key.len(), size, "{shape}");
                    assert!(seen.insert(key), "{shape} of {size}: {key:?} twice");
                }
            }
        }
    }

    #[test]
    fn absent_keys_lie_among_existing_ones() {
        for shape in KeyShape::ALL {
            let (mut existing, absent) = all(shape, shape.default_key_size(), 5_000);
            existing.sort();
            let inside = absent
                .iter()
                .filter(|key| existing[0] < **key && **key < existing[existing.len() - 1])
                .count();
            assert!(inside > 4_990, "{shape}: only {inside} of 5,000 misses inside the range of hits");
            // Misses fall between neighbours: most of the gaps between existing keys that they fall
            // into are distinct.
            let gaps: HashSet<usize> =
                absent.iter().map(|key| existing.partition_point(|other| other < key)).collect();
            assert!(gaps.len() > 2_000, "{shape}: misses fall into only {} gaps", gaps.len());
        }
    }

    #[test]
    fn keys_that_cannot_fit_are_refused() {
        let error = Keys::new(KeyShape::Sequential, 3, 2_000).expect_err("four digits");
        assert_eq!(error, "2000 distinct keys of shape sequential need 4 bytes each, not 3");
        assert!(Keys::new(KeyShape::Random, 2, 1 << 16).is_ok());
        assert!(Keys::new(KeyShape::Random, 2, (1 << 16) + 1).is_err());
        assert!(Keys::new(KeyShape::Random, 65_536, 10).is_err());
        for shape in KeyShape::ALL {
            let (least, _) = (1..100)
                .map(|size| (size, Keys::new(shape, size, 1 << 20)))
                .find(|(_, keys)| keys.is_ok())
                .expect("some size fits");
            let (existing, absent) = all(shape, least, 1 << 12);
            let distinct: HashSet<_> = existing.iter().chain(&absent).collect();
            assert_eq!(distinct.len(), 2 << 12, "{shape} of {least}");
        }
    }

    #[test]
    fn names_parse_back() {
        for shape in KeyShape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert!("zigzag".parse::<KeyShape>().is_err());
    }
}
