//! Items in key order, without storing their keys.
//!
//! Sorts by eight bytes of the key at a time, most significant first, and continues within ties. A
//! key is generated again for each eight bytes that are needed.

use crate::keys::Keys;

/// The items below `count` in the order of their keys. Uses 16 bytes per item while sorting, and 8
/// for the result.
pub(crate) fn sorted_items(keys: &Keys, count: u64) -> Vec<u64> {
    let mut pairs: Vec<(u64, u64)> = (0..count).map(|item| (0, item)).collect();
    let mut key = Vec::new();
    let mut ties = vec![(0, pairs.len(), 0)];
    while let Some((start, end, offset)) = ties.pop() {
        let tied = &mut pairs[start..end];
        for (head, item) in tied.iter_mut() {
            keys.existing(*item, &mut key);
            *head = head_at(&key, offset);
        }
        tied.sort_unstable();
        if offset + 8 >= keys.size() {
            continue;
        }
        let mut from = start;
        for tie in tied.chunk_by(|a, b| a.0 == b.0) {
            if tie.len() > 1 {
                ties.push((from, from + tie.len(), offset + 8));
            }
            from += tie.len();
        }
    }
    pairs.into_iter().map(|(_, item)| item).collect()
}

fn head_at(key: &[u8], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = &key[offset.min(key.len())..];
    let take = rest.len().min(8);
    bytes[..take].copy_from_slice(&rest[..take]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyShape;

    #[test]
    fn agrees_with_sorting_the_keys() {
        for shape in KeyShape::ALL {
            for size in [9, 16, 61] {
                let keys = Keys::new(shape, size, 6000).expect("fits");
                let mut expected: Vec<(Vec<u8>, u64)> = (0..3000)
                    .map(|item| {
                        let mut key = Vec::new();
                        keys.existing(item, &mut key);
                        (key, item)
                    })
                    .collect();
                expected.sort();
                let expected: Vec<u64> = expected.into_iter().map(|(_, item)| item).collect();
                assert_eq!(sorted_items(&keys, 3000), expected, "{shape} of {size}");
            }
        }
    }
}
