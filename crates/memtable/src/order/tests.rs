//! Tests of the chunks that make up an order: their sizes, their memory, the choice of those that
//! are merged, and the pace of merges.

use shamba_key::{DigestFn, DigestKind, EntryKind};
use shamba_testkit::Dice;

use super::super::iter::Source;
use super::super::{ChunkedMemtable, Memtable};
use super::summary::SummaryBuilder;
use super::*;

/// Memory of an entry with a key of eight bytes and no value in the arena: a header of 14 bytes and
/// the key, aligned to four.
const ARENA_BYTES: usize = 24;

/// A chunk of `count` entries, which need not exist.
fn chunk_of(count: usize) -> Chunk {
    let entry = EntryRef::from_bits(1).expect("not 0");
    let mut summary = SummaryBuilder::with_capacity(count);
    (0..count).for_each(|number| summary.push(SeqNo(number as u64)));
    Chunk::sampled(vec![entry; count], 3, vec![0; count.div_ceil(8)], summary.finish())
}

fn chunks_of(counts: &[usize]) -> Vec<Arc<Chunk>> {
    counts.iter().map(|count| Arc::new(chunk_of(*count))).collect()
}

fn counts_of(chunks: &[Arc<Chunk>]) -> Vec<usize> {
    chunks.iter().map(|chunk| chunk.refs().len()).collect()
}

fn insert(table: &ChunkedMemtable, key: &[u8], seq: u64) {
    let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(key);
    table.insert(digest, key, SeqNo(seq), EntryKind::Put, b"");
}

/// Inserts the entries after number `from` up to number `to`, with keys of eight bytes in no order.
pub(crate) fn insert_numbers(table: &ChunkedMemtable, from: u64, to: u64) {
    for number in from + 1..=to {
        insert(table, &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), number);
    }
}

/// The chunks of a new snapshot, which also does its share of a merge, from the smallest on. The
/// memtable counts exactly their memory and that of the tail, in addition to its entries.
fn merge_a_little(table: &ChunkedMemtable) -> Vec<usize> {
    let state = table.snapshot().state;
    let chunks: usize = state.chunks.iter().map(|chunk| chunk.bytes()).sum();
    let order = table.bytes() as usize - table.entries() as usize * ARENA_BYTES;
    assert_eq!(order, chunks + state.tail.bytes(), "chunks of {:?} entries", counts_of(&state.chunks));
    let mut counts = counts_of(&state.chunks);
    counts.sort_unstable();
    counts
}

/// A memtable without an index, whose memory is that of its entries and its order, after `inserts`
/// of them and no scan.
fn filled(inserts: u64) -> ChunkedMemtable {
    let table = ChunkedMemtable::new(false);
    insert_numbers(&table, 0, inserts);
    table
}

#[test]
fn a_chunk_takes_four_bytes_per_entry_one_for_heads_and_an_eighth_for_the_summary() {
    for count in [1usize, 7, 8, 9, 64, 65, 1_000, 6_400] {
        let groups = count.div_ceil(64);
        let expected = size_of::<Chunk>() + 4 * count + 8 * count.div_ceil(8) + 8 * groups;
        assert_eq!(chunk_of(count).bytes(), expected, "{count} entries");
    }
}

#[test]
fn a_tail_takes_sixteen_bytes_per_entry_from_the_start() {
    for capacity in [16, 17, 1_024] {
        let fixed = size_of::<Tail>() + size_of::<Chunk>();
        assert_eq!(Tail::new(capacity).bytes(), fixed + 16 * capacity, "capacity {capacity}");
    }
    let (order, writer) = Order::new();
    assert_eq!(order.bytes(), writer.tail.bytes(), "an empty order has a tail and nothing else");
}

#[test]
fn only_one_merge_claims_a_chunk() {
    let chunk = chunk_of(20);
    assert!(chunk.claim(BY_READERS), "the chunk is free");
    assert!(!chunk.claim(BY_WRITER) && !chunk.claim(BY_READERS), "it is claimed");
    assert_eq!(chunk.claim.load(Ordering::Relaxed), BY_READERS);
    assert_eq!(chunk.prefix(), 3);
}

#[test]
fn the_writer_merges_eight_or_more_chunks_of_the_smallest_class_that_has_them() {
    let picked = |counts: &[usize]| counts_of(&pick_like_sized(chunks_of(counts)));
    assert_eq!(picked(&[]), [0; 0]);
    assert_eq!(picked(&[16; 7]), [0; 0], "seven are too few");
    assert_eq!(picked(&[16; 8]), [16; 8]);
    assert_eq!(picked(&[16; 11]), [16; 11]);
    // Classes are powers of eight: 8, 16 and 63 are in one, 64 and 511 in the next.
    assert_eq!(picked(&[16, 8, 63, 8, 63, 16, 32, 31]).len(), 8);
    assert_eq!(picked(&[8, 8, 8, 63, 63, 63, 63, 64, 64]), [0; 0], "seven of one class, two of another");
    assert_eq!(picked(&[8, 8, 8, 8, 512, 512, 512, 512]), [0; 0]);
    let mixed = [[600; 8], [70; 8], [4_096; 8]].concat();
    assert_eq!(picked(&mixed), [70; 8], "the smallest of three classes");
    let mixed = [&[600; 9][..], &[70; 7], &[9; 2]].concat();
    assert_eq!(picked(&mixed), [600; 9], "the only class with enough");
}

#[test]
fn readers_merge_the_chunks_that_cost_least_per_chunk_removed() {
    let picked = |counts: &[usize]| counts_of(&pick_cheapest(chunks_of(counts)));
    assert_eq!(picked(&[]), [0; 0]);
    assert_eq!(picked(&[16]), [0; 0], "merging one chunk removes none");
    assert_eq!(picked(&[16, 16]), [16; 2]);
    assert_eq!(picked(&[16, 16, 16]), [16; 3]);
    assert_eq!(picked(&[1_024, 16, 16]), [16; 2], "a large one is left for later");
    assert_eq!(picked(&[5_000, 3_000]), [3_000, 5_000], "nothing is cheaper");
    for seed in 0..200 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let mut counts: Vec<usize> =
            (0..2 + dice.below(12)).map(|_| 1 + dice.below(1 << dice.below(11))).collect();
        let found = picked(&counts);
        counts.sort_unstable();
        assert_eq!(found, counts[..found.len()], "the smallest ones");
        // Of n chunks a merge removes n - 1.
        let cost = |count: usize| counts[..count].iter().sum::<usize>() as f64 / (count - 1) as f64;
        let least = (2..=counts.len()).map(cost).fold(f64::INFINITY, f64::min);
        assert!(cost(found.len()) <= least * (1.0 + 1e-9), "{found:?} of {counts:?}");
    }
}

/// The tail grows with the memtable. The eighth chunk from 512 entries on is full at insert 8,192.
/// From then on the writer moves 80 entries of 7,680 at every 16th insert. So 160 are left after
/// insert 9,681, 80 after 9,697, and none after 9,713. The first snapshot moves 8 entries for each
/// chunk but one of the 15 that are there by then, which is 112.
#[test]
fn the_writer_moves_five_entries_per_insert_and_a_snapshot_eight_per_further_chunk() {
    let small = [16, 16, 32, 64, 128, 256];
    let before = [&small[..], &[512], &[1_024; 8]].concat();
    let after = [&small[..], &[1_024, 7_680]].concat();
    assert_eq!(merge_a_little(&filled(9_681)), before, "48 entries are left to move");

    // The first snapshot has 32 moves left for the readers' own merge, of 16, 16 and 32 entries.
    // The second has 56.
    let table = filled(9_697);
    assert_eq!(merge_a_little(&table), after, "the writer's merge is complete");
    assert_eq!(merge_a_little(&table), [64, 64, 128, 256, 1_024, 7_680], "the readers' merge too");

    // The first snapshot moves 56 of 64.
    let table = filled(9_713);
    assert_eq!(merge_a_little(&table), after, "the writer has completed its merge");
    assert_eq!(merge_a_little(&table), [64, 64, 128, 256, 1_024, 7_680]);
}

#[test]
fn snapshots_without_inserts_between_them_merge_all_chunks_into_one() {
    for inserts in [48, 1_000, 9_690] {
        let table = filled(inserts);
        let sealed: usize = merge_a_little(&table).iter().sum();
        // Each snapshot of two chunks or more moves eight entries or more, and no entry is moved
        // more than once for each chunk.
        let mut rounds = 0;
        while merge_a_little(&table).len() > 1 {
            rounds += 1;
            assert!(rounds < 2 * sealed, "{inserts} inserts");
        }
        assert_eq!(merge_a_little(&table), [sealed]);
    }
}

#[test]
fn chunks_and_tail_are_charged_exactly_whatever_was_inserted_and_merged_between() {
    for seed in 0..4 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let table = ChunkedMemtable::new(false);
        let mut inserts = 0;
        while inserts < 12_000 {
            let burst = dice.below(if dice.one_in(30) { 4_000 } else { 100 }) as u64;
            insert_numbers(&table, inserts, inserts + burst);
            inserts += burst;
            if inserts > 0 {
                let counts = merge_a_little(&table);
                let tail = table.snapshot().state.tail.len();
                assert_eq!(counts.iter().sum::<usize>() + tail, inserts as usize, "entries");
            }
        }
    }
}

#[test]
fn the_prefix_of_a_snapshot_is_what_all_keys_share() {
    let table = ChunkedMemtable::new(false);
    let mut seq = 0;
    let mut prefix_after = |key: &[u8]| {
        seq += 1;
        insert(&table, key, seq);
        table.snapshot().prefix
    };
    assert_eq!(prefix_after(b"some/prefix/11"), 14, "the only key");
    assert_eq!(prefix_after(b"some/prefix/12"), 13);
    assert_eq!(prefix_after(b"some/prefix/2"), 12);
    for number in 0..100 {
        assert_eq!(prefix_after(format!("some/prefix/{number}").as_bytes()), 12, "in chunks and the tail");
    }
    assert_eq!(prefix_after(b"some/"), 5, "a key that is a prefix of all others");
    assert_eq!(prefix_after(b"some/other"), 5);
    assert_eq!(prefix_after(b"another"), 0);
}
