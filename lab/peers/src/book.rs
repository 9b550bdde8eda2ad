//! Expected contents of the database: key and value of each item, and its number of writes.
//!
//! A value is a function of its item and of the number of writes so far, so that the correct answer
//! to a get is known in advance, and a stale one is detected. One byte per item holds that number;
//! it wraps, so a value that is exactly 256 writes old would go undetected. The book is kept in a
//! file next to the database, because a fill and the later requests are different processes.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shamba_workload::{KeyShape, Keys, Values};

use crate::peer::Result;

/// Dataset of a fill.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Dataset {
    /// Items.
    pub items: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl std::fmt::Display for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}+{}", self.items, self.key_bytes, self.value_bytes)
    }
}

impl std::str::FromStr for Dataset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self> {
        let parts = || {
            let (items, sizes) = text.split_once('x')?;
            let (key, value) = sizes.split_once('+')?;
            Some(Self {
                items: items.parse().ok()?,
                key_bytes: key.parse().ok()?,
                value_bytes: value.parse().ok()?,
            })
        };
        // Values tell items apart by their first bytes; keys of fewer bytes may not hold all items.
        parts().filter(|set| set.items > 0 && set.key_bytes >= 8 && set.value_bytes >= 16).ok_or_else(|| {
            format!("a data set is ITEMSxKEY+VALUE bytes, as 10000000x16+100, keys from 8 and values from 16, not {text:?}")
        })
    }
}

/// Keys, values and versions.
pub struct Book {
    keys: Keys,
    values: Values,
    versions: Vec<u8>,
}

impl Book {
    /// The book of an empty database, which no item has been written to.
    pub fn new(dataset: Dataset, seed: u64) -> Result<Self> {
        // Twice, for absent keys; and twice again, for what is inserted later.
        let keys = Keys::new(KeyShape::Random, dataset.key_bytes, 4 * dataset.items)?;
        Ok(Self { keys, values: Values::new(dataset.value_bytes, seed), versions: Vec::new() })
    }

    /// The book as it was saved.
    pub fn load(dataset: Dataset, seed: u64, file: &Path) -> Result<Self> {
        let versions = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { versions, ..Self::new(dataset, seed)? })
    }

    /// Saves it.
    pub fn save(&self, file: &Path) -> Result<()> {
        fs::write(file, &self.versions).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Items that were ever written.
    pub fn items(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Reserves space for this number of items, so that a measured fill does not reallocate.
    pub fn reserve(&mut self, items: u64) {
        self.versions.resize(items as usize, 0);
    }

    /// The key of an item.
    pub fn key(&self, item: u64, key: &mut Vec<u8>) {
        self.keys.existing(item, key);
    }

    /// A key adjacent to the item's that is never written.
    pub fn absent_key(&self, item: u64, key: &mut Vec<u8>) {
        self.keys.absent(item, key);
    }

    /// Notes another write of an item and writes its new value over `value`.
    pub fn next_value(&mut self, item: u64, value: &mut Vec<u8>) {
        let place = item as usize;
        if place >= self.versions.len() {
            self.versions.resize(place + 1, 0);
        }
        self.versions[place] = self.versions[place].wrapping_add(1);
        self.value(item, value);
    }

    /// Writes the value that an item must have over `value`.
    pub fn value(&self, item: u64, value: &mut Vec<u8>) {
        let version = self.versions.get(item as usize).copied().unwrap_or(0);
        let number = item | u64::from(version) << 48;
        self.values.write(number, value);
        value[..8].copy_from_slice(&number.to_le_bytes());
    }

    /// The items in the order of their keys.
    pub fn in_key_order(&self, items: u64) -> Vec<u32> {
        let mut key = Vec::new();
        let mut heads: Vec<(u64, u32)> = (0..items as u32)
            .map(|item| {
                self.key(u64::from(item), &mut key);
                let mut head = [0; 8];
                head.copy_from_slice(&key[..8]);
                (u64::from_be_bytes(head), item)
            })
            .collect();
        // Heads of random keys are all different.
        heads.sort_unstable();
        heads.into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_with_every_write_and_survive_the_file() {
        let dataset: Dataset = "100x16+64".parse().expect("a data set");
        let mut book = Book::new(dataset, 5).expect("fits");
        let (mut first, mut second, mut again) = (Vec::new(), Vec::new(), Vec::new());
        book.next_value(99, &mut first);
        book.next_value(99, &mut second);
        assert_ne!(first, second);
        assert_eq!(book.items(), 100);
        let file = tempfile::NamedTempFile::new().expect("a file");
        book.save(file.path()).expect("saved");
        Book::load(dataset, 5, file.path()).expect("loaded").value(99, &mut again);
        assert_eq!(again, second);
    }

    #[test]
    fn key_order_is_that_of_keys() {
        let dataset: Dataset = "1000x16+64".parse().expect("a data set");
        let book = Book::new(dataset, 5).expect("fits");
        let keys: Vec<Vec<u8>> = book
            .in_key_order(1000)
            .into_iter()
            .map(|item| {
                let mut key = Vec::new();
                book.key(u64::from(item), &mut key);
                key
            })
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn data_sets_parse_back_and_bad_ones_do_not() {
        for text in ["10000000x16+100", "2000000x512+512"] {
            assert_eq!(text.parse::<Dataset>().map(|set| set.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "x16+100", "10x4+100", "10x16", "10x16+8", "0x16+100"] {
            assert!(text.parse::<Dataset>().is_err(), "{text}");
        }
    }
}
