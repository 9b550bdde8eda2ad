//! Test of the example in `docs/formats/wal.md`.

use super::*;
use shamba_testkit::{FRAME_FIELDS, HEADER_FIELDS, PROMISE_FIELDS, annotated};

#[test]
fn the_example_of_the_format_page() {
    let env = new_env(1);
    let mut wal = WalWriter::create(&env, Path::new(DIR), LogNo(7), None, SeqNo(40)).expect("a log");
    let mut ops = Vec::new();
    encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"apple", value: b"red" });
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::Delete { key: b"pear" });
    encode_op(&mut ops, false, KeyspaceId(3), OpRef::RangeDelete { start: b"a", end: Some(b"c") });
    let operand = Operand::single(b"+1").encode();
    encode_op(&mut ops, false, KeyspaceId(3), OpRef::Merge { key: b"n", operand: &operand });
    let stored = Expiry(1_704_067_260_000).encode(b"asha");
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::PutExpiring { key: b"sid", stored: &stored });
    wal.append_batch(SeqNo(41), 5, &ops).expect("appended");
    wal.append_op(SeqNo(46), KeyspaceId(0), OpRef::Put { key: b"fig", value: b"" }).expect("appended");
    wal.finish_clean().expect("closed");
    let path = Path::new(DIR).join(log_file_name(LogNo(7)));
    let bytes = read_file(env.vfs.as_ref(), &path).expect("the log");
    let head = [
        (8, "head: predecessor's number (none)"),
        (8, "its length"),
        (8, "its last sequence number"),
        (4, "its last frame's checksum"),
        (8, "how much of it is synced"),
        (8, "base sequence number"),
    ];
    let batch = [
        (1, "no gap in the sequence numbers"),
        (1, "first of a batch: put"),
        (6, "key apple"),
        (4, "value red"),
        (1, "delete"),
        (5, "key pear"),
        (2, "range delete, keyspace 3"),
        (2, "from a"),
        (1, "an end follows"),
        (2, "to c"),
        (2, "merge, keyspace 3"),
        (2, "key n"),
        (1, "3 bytes"),
        (1, "flag: an operand as it was written"),
        (2, "operand +1"),
        (1, "put with an expiry"),
        (4, "key sid"),
        (1, "12 bytes"),
        (8, "expires at 2024-01-01 00:01 UTC"),
        (4, "value asha"),
        (1, "first of a batch: put"),
        (4, "key fig"),
        (1, "empty value"),
    ];
    let frame = &FRAME_FIELDS[..];
    let fields = [&HEADER_FIELDS[..], frame, &head, frame, &batch, &PROMISE_FIELDS, frame].concat();
    let text = annotated(&bytes, &fields);
    let page = include_str!("../../../../../docs/formats/wal.md");
    assert!(page.contains(&text), "docs/formats/wal.md lacks this:\n{text}");
}
