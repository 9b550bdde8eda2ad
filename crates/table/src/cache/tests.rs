//! The cache keeps what is used, stays within its bytes, and tells the ledger.

use super::*;

fn block(fill: u8, bytes: usize) -> Bytes {
    Bytes::from(vec![fill; bytes + 16])
}

#[test]
fn blocks_come_back_until_room_is_needed_and_what_is_asked_for_stays() {
    let ledger = Arc::new(Ledger::new());
    let cache = BlockCache::new(40_000, Arc::clone(&ledger));
    for number in 0..100u64 {
        cache.insert(TableId(1), number * 4_096, block(number as u8, 4_000));
        assert!(cache.get(TableId(1), 0).is_some(), "the block in use was evicted at {number}");
        assert!(cache.bytes() <= 40_000);
        assert_eq!(cache.bytes(), ledger.bytes(LedgerPart::BlockCache));
    }
    let kept: Vec<u64> = (0..100).filter(|i| cache.get(TableId(1), i * 4_096).is_some()).collect();
    assert_eq!(kept.len(), 9, "{kept:?}");
    for number in kept {
        let found = cache.get(TableId(1), number * 4_096).expect("kept");
        assert_eq!(found[0], number as u8);
    }
    assert!(cache.get(TableId(2), 0).is_none());
}

#[test]
fn a_table_can_be_forgotten_and_too_large_blocks_stay_out() {
    let ledger = Arc::new(Ledger::new());
    let cache = BlockCache::new(64 << 20, Arc::clone(&ledger));
    for table in [1, 2] {
        for number in 0..1_000 {
            cache.insert(TableId(table), number * 4_096, block(table as u8, 100));
        }
    }
    let before = cache.bytes();
    cache.remove_table(TableId(1));
    assert_eq!(cache.bytes() * 2, before);
    assert_eq!(ledger.bytes(LedgerPart::BlockCache), cache.bytes());
    assert!((0..1_000).all(|number| cache.get(TableId(1), number * 4_096).is_none()));
    assert!((0..1_000).all(|number| cache.get(TableId(2), number * 4_096).is_some()));
    cache.insert(TableId(3), 0, block(3, 2 << 20));
    assert!(cache.get(TableId(3), 0).is_none());
    let none = BlockCache::new(0, Arc::clone(&ledger));
    none.insert(TableId(1), 0, block(1, 1));
    assert!(none.get(TableId(1), 0).is_none());
    drop((cache, none));
    assert_eq!(ledger.total(), 0);
}
