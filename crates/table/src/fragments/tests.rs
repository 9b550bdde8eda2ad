//! Tests of fragmented tombstones against a list that is searched linearly.

use super::*;
use shamba_env::{Rng, SeededRng};

fn tombstone(start: &str, end: Option<&str>, seq: u64) -> RangeTombstone {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    RangeTombstone { start: bytes(start), end: end.map(bytes), seq: SeqNo(seq) }
}

fn naive(list: &[RangeTombstone], key: &[u8], visible: SeqNo) -> SeqNo {
    let over = |t: &&RangeTombstone| {
        t.seq <= visible && t.start.as_ref() <= key && t.end.as_ref().is_none_or(|end| key < end.as_ref())
    };
    list.iter().filter(over).map(|t| t.seq).max().unwrap_or(SeqNo::ZERO)
}

/// Keys "", "a" to "l", and a key directly after each.
fn keys() -> Vec<String> {
    let letters = ('a'..='l').map(|letter| letter.to_string());
    std::iter::once(String::new()).chain(letters).flat_map(|key| [key.clone(), key + "\0"]).collect()
}

fn random_list(rng: &SeededRng, count: u64) -> Vec<RangeTombstone> {
    let keys = keys();
    let pick = || keys[(rng.next_u64() % keys.len() as u64) as usize].as_str();
    let seqs = (1..=count).map(|seq| if rng.next_u64().is_multiple_of(4) { seq + 1 } else { seq });
    seqs.map(|seq| {
        let end = (!rng.next_u64().is_multiple_of(6)).then(pick);
        tombstone(pick(), end, seq)
    })
    .collect()
}

#[test]
fn random_lists_answer_as_the_naive_search() {
    for seed in 0..300 {
        let rng = SeededRng::new(seed);
        let count = rng.next_u64() % 24;
        let list = random_list(&rng, count);
        let at_once = FragmentedTombstones::new(list.clone());
        let one_by_one = list
            .iter()
            .cloned()
            .fold(FragmentedTombstones::default(), |before, tombstone| before.with(tombstone));
        assert!(one_by_one.parts.len() <= 6, "seed {seed}: {} parts", one_by_one.parts.len());
        for tombstones in [&at_once, &one_by_one] {
            let full: Vec<_> = list.iter().filter(|t| !t.is_empty()).collect();
            assert_eq!(
                (tombstones.iter().count(), tombstones.is_empty()),
                (full.len(), full.is_empty()),
                "seed {seed}"
            );
            for key in keys() {
                for visible in (0..=count + 1).map(SeqNo).chain([SeqNo::MAX]) {
                    let expected = naive(&list, key.as_bytes(), visible);
                    assert_eq!(
                        tombstones.newest_covering(key.as_bytes(), visible),
                        expected,
                        "seed {seed}, key {key:?}, visible {visible}"
                    );
                    let cover = tombstones.cover(key.as_bytes(), visible);
                    assert!(
                        cover.contains(key.as_bytes()) && cover.floor == expected,
                        "seed {seed}: {cover:?}"
                    );
                    for other in keys().iter().filter(|other| cover.contains(other.as_bytes())) {
                        let floor = naive(&list, other.as_bytes(), visible);
                        assert_eq!(floor, cover.floor, "seed {seed}: {cover:?} is not the same at {other:?}");
                    }
                    if !key.is_empty() {
                        let before = tombstones.cover_before(key.as_bytes(), visible);
                        let reaches =
                            before.upper.as_ref().is_none_or(|upper| key.as_bytes() <= upper.as_ref());
                        assert!(before.lower.as_ref() < key.as_bytes() && reaches, "seed {seed}: {before:?}");
                        let floor = naive(&list, &before.lower, visible);
                        assert_eq!(floor, before.floor, "seed {seed}: {before:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn thinning_keeps_what_readers_see_inside() {
    for seed in 0..300 {
        let rng = SeededRng::new(seed);
        let list = random_list(&rng, rng.next_u64() % 16);
        let tombstones = FragmentedTombstones::new(list.clone());
        let stripes: Vec<SeqNo> = (1..=16).filter(|_| rng.next_u64().is_multiple_of(4)).map(SeqNo).collect();
        let thinned = tombstones.thinned(b"c", Some(b"h"), &stripes);
        let sequences: std::collections::BTreeSet<_> = thinned.iter().map(|t| t.seq).collect();
        assert!(sequences.iter().all(|seq| list.iter().any(|t| t.seq == *seq)), "seed {seed}: invented");
        for key in keys() {
            let inside = ("c".."h").contains(&key.as_str());
            let expected = |visible| if inside { naive(&list, key.as_bytes(), visible) } else { SeqNo::ZERO };
            for visible in stripes.iter().copied().chain([SeqNo::MAX]) {
                let newest = naive(&thinned, key.as_bytes(), visible);
                assert_eq!(
                    newest,
                    expected(visible),
                    "seed {seed}: thinned, key {key:?}, stripes {stripes:?}"
                );
            }
        }
    }
}

#[test]
fn thinning_joins_what_other_tombstones_had_cut_up() {
    let mut list = vec![tombstone("a", Some("z"), 9)];
    list.extend(('b'..'y').map(|letter| tombstone(&letter.to_string(), Some("z"), 3)));
    assert_eq!(FragmentedTombstones::new(list).thinned(b"", None, &[]), [tombstone("a", Some("z"), 9)]);
}

#[test]
fn deleting_up_to_here_again_and_again_takes_little_memory() {
    let count = 4_000u64;
    let mut tombstones = FragmentedTombstones::default();
    for seq in 1..=count {
        tombstones = tombstones.with(tombstone("", Some(&format!("{seq:06}")), seq));
    }
    let hung: usize = tombstones.parts.iter().map(|part| part.seqs.len()).sum();
    assert!(hung < 2 * 13 * count as usize, "{hung} places for {count} tombstones");
    assert_eq!(tombstones.newest_covering(b"000005", SeqNo::MAX), SeqNo(count));
    assert_eq!(tombstones.newest_covering(b"000005", SeqNo(9)), SeqNo(9));
    assert_eq!(tombstones.newest_covering(b"000005", SeqNo(5)), SeqNo::ZERO);
    assert_eq!(tombstones.newest_covering(b"004000", SeqNo::MAX), SeqNo::ZERO);
}

#[test]
fn memory_is_that_of_the_lists_and_within_the_bound_for_their_number() {
    assert_eq!(FragmentedTombstones::memory_bytes_max(0), 0);
    assert_eq!(FragmentedTombstones::default().memory_bytes(), 0);
    let apart = |n: u64| tombstone(&format!("{n:06}"), Some(&format!("{n:06}a")), n);
    let nested = |n: u64| tombstone(&format!("{n:06}"), Some(&format!("{:06}", 1_000_000 - n)), n);
    let open = |n: u64| tombstone(&format!("{n:06}"), None, n);
    for count in [1, 2, 3, 7, 64, 1_000, 5_000] {
        for make in [&apart as &dyn Fn(u64) -> RangeTombstone, &nested, &open] {
            let tombstones = FragmentedTombstones::new((1..=count).map(make).collect());
            let bytes = tombstones.memory_bytes();
            let least = count * (size_of::<RangeTombstone>() + size_of::<Bytes>()) as u64;
            let most = FragmentedTombstones::memory_bytes_max(count);
            assert!(least < bytes && bytes <= most, "{least} {bytes} {most} for {count}");
        }
    }
}
