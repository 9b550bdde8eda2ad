//! Layered heads against a plain binary search over the keys themselves.

use std::cell::Cell;

use super::*;

/// Pseudo-random numbers, reproducible from the seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((mixed ^ (mixed >> 32)) % end.max(1) as u64) as usize
    }

    fn bytes(&mut self, length: usize, alphabet: &[u8]) -> Vec<u8> {
        (0..length).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

const EVERY_BYTE: &[u8] = &{
    let mut bytes = [0u8; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

/// One key of a kind: 0 random, 1 short over two letters, 2 zeros and ones, 3 paths, 4 one letter
/// at many lengths, 5 a long common start.
fn key(kind: usize, numbers: &mut Numbers) -> Vec<u8> {
    match kind {
        0 => numbers.bytes(16, EVERY_BYTE),
        1 => {
            let length = numbers.below(12);
            numbers.bytes(length, b"ab")
        }
        2 => {
            let length = numbers.below(20);
            numbers.bytes(length, b"\0\0\0\x01\xff")
        }
        3 => {
            let mut path = b"/usr".to_vec();
            for _ in 0..numbers.below(6) {
                path.push(b'/');
                path.extend_from_slice(
                    [&b"share"[..], b"lib", b"documentation", b"x86_64-linux-gnu", b"a"][numbers.below(5)],
                );
            }
            path
        }
        4 => vec![b'a'; numbers.below(60)],
        _ => {
            let mut long = vec![b'p'; 1_000 + numbers.below(3)];
            let more = numbers.below(10);
            long.extend(numbers.bytes(more, b"p\0q"));
            long
        }
    }
}

/// Searches for `wanted` and compares with a search over the keys.
fn agree(heads: &LayeredHeads, keys: &[Vec<u8>], wanted: &[u8], context: &str) {
    let asked = Cell::new(0);
    let full = |number: usize| {
        asked.set(asked.get() + 1);
        keys[number].as_slice()
    };
    let lower = keys.partition_point(|key| key.as_slice() < wanted);
    let upper = keys.partition_point(|key| key.as_slice() <= wanted);
    let name = wanted.escape_ascii();
    assert_eq!(heads.equal_range(wanted, full), lower..upper, "{context}: {name}");
    assert!(asked.get() <= 1);
    assert_eq!(heads.upper_bound(wanted, |number| &keys[number]), upper, "{context}: {name}");
}

#[test]
fn bounds_are_those_of_a_search_over_the_keys() {
    for seed in 0..600 {
        let mut numbers = Numbers(seed);
        let mixed = numbers.below(3) == 0;
        let kind = numbers.below(6);
        let count = [0, 1, 2, 3, 17, 300][numbers.below(6)];
        let one = |numbers: &mut Numbers| {
            let kind = if mixed { numbers.below(6) } else { kind };
            key(kind, numbers)
        };
        let mut keys: Vec<Vec<u8>> = (0..count).map(|_| one(&mut numbers)).collect();
        keys.sort();
        if numbers.below(2) == 0 {
            keys.dedup();
        }
        let heads = LayeredHeads::new(keys.len(), |number| &keys[number]);
        assert_eq!((heads.len(), heads.is_empty()), (keys.len(), keys.is_empty()));
        let context = format!("seed {seed}");
        for held in &keys {
            agree(&heads, &keys, held, &context);
            for wanted in neighbours(held) {
                agree(&heads, &keys, &wanted, &context);
            }
        }
        for _ in 0..100 {
            let wanted = one(&mut numbers);
            agree(&heads, &keys, &wanted, &context);
        }
    }
}

/// The nearest keys to `key`.
fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![[key, b"\0"].concat(), [key, b"\xff"].concat()];
    for cut in [1, 7, 8] {
        found.extend(key.len().checked_sub(cut).map(|end| key[..end].to_vec()));
    }
    for at in [0, key.len() / 2, key.len().saturating_sub(1)] {
        for change in [1, 255] {
            let mut other = key.to_vec();
            if let Some(byte) = other.get_mut(at) {
                *byte = byte.wrapping_add(change);
                found.push(other);
            }
        }
    }
    found
}

#[test]
fn heads_order_exactly_as_keys_do() {
    let mut numbers = Numbers(7);
    let mut ties = 0;
    for _ in 0..20_000 {
        let kind = numbers.below(5);
        let (a, b) = (key(kind, &mut numbers), key(kind, &mut numbers));
        if head(&a) == head(&b) {
            ties += 1;
            assert_eq!(head(&a) & 0xff == GOES_ON, a.len() > BYTES && b.len() > BYTES);
            assert!(head(&a) & 0xff == GOES_ON || a == b, "{a:?} {b:?}");
        } else {
            assert_eq!(head(&a) < head(&b), a < b, "{a:?} {b:?}");
        }
    }
    assert!(ties > 0, "no tie was tried");
}

#[test]
fn random_keys_take_eight_bytes_each_and_longest_keys_do_not_exhaust_the_stack() {
    let mut numbers = Numbers(1);
    let mut keys: Vec<Vec<u8>> = (0..10_000).map(|_| key(0, &mut numbers)).collect();
    keys.sort();
    let heads = LayeredHeads::new(keys.len(), |number| &keys[number]);
    assert_eq!(heads.memory_bytes(), 8 * keys.len());

    // Each key is the one before plus more bytes: nested layers, thousands deep.
    let long = vec![0u8; crate::MAX_KEY_BYTES];
    let lengths: Vec<usize> = (0..crate::MAX_KEY_BYTES).step_by(5).collect();
    let heads = LayeredHeads::new(lengths.len(), |number| &long[..lengths[number]]);
    for (number, length) in lengths.iter().enumerate().step_by(1_000) {
        let range = heads.equal_range(&long[..*length], |at| &long[..lengths[at]]);
        assert_eq!(range, number..number + 1);
    }
}
