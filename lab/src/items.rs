//! Entries by number: ascending keys, an absent key after each, and values that identify their key.

use shamba_workload::mix2;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// The items of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    pub count: u64,
    pub entry_bytes: u64,
    pub seed: u64,
}

impl Items {
    /// The key of an item, or of the absent one after it: ascending, without a pattern that prefix
    /// compression could exploit.
    pub fn key(self, item: u64, absent: bool) -> [u8; KEY_BYTES] {
        let number = 2 * item + u64::from(absent);
        let head = number * (u64::MAX / (2 * self.count));
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&head.to_be_bytes());
        for (place, word) in key[8..].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix2(number ^ (place as u64) << 60, self.seed).to_le_bytes());
        }
        key
    }

    /// Share of all keys below `key`.
    pub fn part_below(self, key: &[u8]) -> f64 {
        let mut head = [0; 8];
        head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        (u64::from_be_bytes(head) as f64 / u64::MAX as f64).min(1.0)
    }

    pub fn value(self, item: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&item.to_le_bytes());
        let mut word = item;
        while (value.len() + KEY_BYTES) < self.entry_bytes as usize {
            word = mix2(word, self.seed);
            value.extend_from_slice(&word.to_le_bytes());
        }
        value.truncate((self.entry_bytes as usize).saturating_sub(KEY_BYTES).max(8));
    }

    /// The key and the value.
    pub fn pair(self, item: u64) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        self.value(item, &mut value);
        (self.key(item, false).to_vec(), value)
    }

    pub fn bytes(self) -> u64 {
        self.count * self.entry_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_with_items_and_absent_ones_lie_between() {
        let items = Items { count: 1_000, entry_bytes: 64, seed: 3 };
        let keys: Vec<_> =
            (0..1_000).flat_map(|item| [items.key(item, false), items.key(item, true)]).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
        let mut value = Vec::new();
        items.value(7, &mut value);
        assert_eq!(value.len(), 32);
    }
}
