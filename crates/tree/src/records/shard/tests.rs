//! A shard's memory, its queue of chunks, and the records in them.

use super::*;

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn shard(capacity_bytes: usize) -> Shard {
    let mut shard = Shard::default();
    shard.set_capacity(capacity_bytes);
    shard
}

fn insert(shard: &mut Shard, tag: u32, key: &[u8], value: Option<&[u8]>) {
    let record = Record {
        seq: SeqNo(tag.into()),
        edits: Edits(2),
        tag,
        keyspace: KEYSPACE,
        key,
        value,
        has_expiry: false,
    };
    shard.insert(&record);
}

#[test]
fn a_record_is_read_as_it_was_written() {
    for (key, value, has_expiry) in [
        (&b""[..], None, false),
        (b"k", Some(&b""[..]), false),
        (b"key", Some(b"value"), false),
        (b"key", Some(b"8 bytesvalue"), true),
    ] {
        let (seq, edits, keyspace) = (SeqNo(8), Edits(4), KEYSPACE);
        let record = Record { seq, edits, tag: 6, keyspace, key, value, has_expiry };
        let mut bytes = vec![0xff; record_bytes(key.len(), value.map_or(0, <[u8]>::len))];
        record.write(&mut bytes);
        assert_eq!(Record::read(&bytes), Some(record));
        assert_eq!(Record::read(&bytes[..HEADER_BYTES - 1]), None);
    }
}

#[test]
fn it_holds_no_more_than_its_capacity() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut shard = shard(200_000);
    let mut capacity_bytes = 200_000;
    for step in 0..50_000 {
        if random.u32(0..500) == 0 {
            capacity_bytes = random.usize(0..400_000);
            shard.set_capacity(capacity_bytes);
            assert!(capacity_bytes >= CAPACITY_MIN_BYTES || shard.held_bytes() == 0, "step {step}");
        }
        // First short records, then long ones, so that the number of slots changes.
        let longest = if step % 20_000 < 10_000 { 20 } else { 1500 };
        let value = vec![1; random.usize(0..longest)];
        let tag = random.u32(..);
        insert(&mut shard, tag, &tag.to_le_bytes(), Some(&value));
        assert!(shard.held_bytes() <= capacity_bytes, "step {step}: {} bytes", shard.held_bytes());
        if capacity_bytes >= CAPACITY_MIN_BYTES {
            let record = shard.find(tag, KEYSPACE, &tag.to_le_bytes()).expect("the newest record");
            assert_eq!((record.tag, record.value), (tag, Some(&value[..])), "step {step}");
        }
    }
}

#[test]
fn a_shard_is_filled_with_records() {
    let mut shard = shard(1 << 20);
    for tag in (0..u32::MAX).step_by(1 << 16) {
        insert(&mut shard, tag, &tag.to_le_bytes(), Some(&[0; 100]));
    }
    let payload_bytes = shard.len() * 104;
    assert!(payload_bytes * 10 > shard.held_bytes() * 6, "{payload_bytes} bytes of {}", shard.held_bytes());
}

#[test]
fn a_chunk_that_is_used_again_keeps_used_records() {
    let mut shard = shard(CAPACITY_MIN_BYTES);
    insert(&mut shard, 7, b"used", Some(b"value"));
    insert(&mut shard, 7, b"unused", Some(b"value"));
    for tag in 1000..3000 {
        assert!(shard.find(7, KEYSPACE, b"used").is_ok(), "it is dropped before {tag}");
        insert(&mut shard, tag, &tag.to_le_bytes(), Some(&[0; 400]));
    }
    assert_eq!(shard.find(7, KEYSPACE, b"unused").err(), Some(NotHeld { is_repeated: false }));
}

#[test]
fn the_numbers_of_chunks_wrap() {
    let mut shard = shard(CAPACITY_MIN_BYTES);
    shard.first_chunk = u32::MAX - 1;
    for tag in 0..1000 {
        insert(&mut shard, tag, &tag.to_le_bytes(), Some(&[0; 400]));
        let found = shard.find(tag, KEYSPACE, &tag.to_le_bytes()).map(|record| record.tag);
        assert_eq!(found, Ok(tag));
    }
    assert!(shard.first_chunk < 1000, "chunk {}", shard.first_chunk);
}
