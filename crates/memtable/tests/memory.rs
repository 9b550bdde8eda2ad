//! A memtable returns its memory when it is dropped. It is a program of its own: other tests would
//! change the resident memory at the same time.

use shamba_env::process_rss_bytes;
use shamba_key::{DigestFn, DigestKind, EntryKind, SeqNo};
use shamba_memtable::{ChunkedMemtable, Memtable};

/// Enough entries that the index has replaced its first segments by larger ones.
const ENTRIES: u64 = 130;
/// The index of each memtable has 5 KiB of segments: 25 MiB in all.
const MEMTABLES: usize = 5_000;

fn fill_and_drop(memtables: usize) {
    let digest = DigestFn::new(DigestKind::Xxh3, 7);
    for _ in 0..memtables {
        let table = ChunkedMemtable::new(true);
        for seq in 1..=ENTRIES {
            let key = seq.to_be_bytes();
            table.insert(digest.digest(&key), &key, SeqNo(seq), EntryKind::Put, b"");
        }
        assert_eq!(table.entries(), ENTRIES);
    }
}

#[test]
fn memtables_that_are_dropped_leave_no_memory_behind() {
    fill_and_drop(100); // The allocator keeps some memory of the first ones for the next.
    let Some(before_bytes) = process_rss_bytes() else { return };
    fill_and_drop(MEMTABLES);
    let after_bytes = process_rss_bytes().expect("reported before");
    let grown_bytes = after_bytes.saturating_sub(before_bytes);
    assert!(grown_bytes < 8 << 20, "{MEMTABLES} memtables left {grown_bytes} bytes");
}
