//! Tests of values read back from a log, piece by piece: intact, cut and damaged.

use std::path::Path;

use shamba_env::{Env, append_all, read_file};
use shamba_table::{BirthId, Reads};

use super::*;
use crate::framing::frame::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::framing::{FileWindow, FrameReader, FrameStep, Record, RecordKind};
use crate::wal::{LargeRecord, OpRef, ValueLog, ValueLogs, ValuePlace, WalWriter, encode_op};
use shamba_key::{Expiry, LogNo};
use shamba_testkit::memory_env as new_env;

const PATH: &str = "/000007.log";

fn bytes_of(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 251 + at + salt) as u8).collect()
}

/// Owned keys and values of a batch.
struct Parts {
    values: [Vec<u8>; 2],
    keys: [Vec<u8>; 4],
}

/// Keys and values of a batch that straddle frames; `shift` moves each boundary by that many bytes.
fn parts(shift: usize) -> Parts {
    Parts {
        values: [bytes_of(PAYLOAD_BYTES_MAX - 30 + shift, 1), bytes_of(150_000, 6)],
        keys: [bytes_of(300, 2), bytes_of(200, 3), bytes_of(220, 4), bytes_of(65_535, 5)],
    }
}

/// Length of an operand that crosses a frame. Its first byte says that it is a combined one.
const OPERAND_BYTES: usize = 60_000;

fn long_batch(parts: &Parts) -> Vec<(KeyspaceId, OpRef<'_>)> {
    let Parts { values: [first, last], keys: [empty, start, end, gone] } = parts;
    vec![
        (KeyspaceId(0), OpRef::Put { key: b"first", value: first }),
        (KeyspaceId(70_000), OpRef::Put { key: empty, value: b"" }),
        (KeyspaceId(1), OpRef::RangeDelete { start, end: Some(end) }),
        (KeyspaceId(0), OpRef::Delete { key: gone }),
        (KeyspaceId(0), OpRef::RangeDelete { start: b"open", end: None }),
        (KeyspaceId(300), OpRef::Merge { key: start, operand: &first[..OPERAND_BYTES] }),
        (KeyspaceId(3), OpRef::PutExpiring { key: b"short", stored: &last[..20] }),
        (KeyspaceId(3), OpRef::PutExpiring { key: b"expiring", stored: last }),
        (KeyspaceId(2), OpRef::Put { key: b"last", value: last }),
    ]
}

/// Writes a log with the batch as its only record; returns its birth id and the record's place.
fn log_of(env: &Env, ops: &[(KeyspaceId, OpRef<'_>)]) -> (BirthId, LargeRecord) {
    let mut wal = WalWriter::create(env, Path::new("/"), LogNo(7), None, SeqNo(9)).expect("a log");
    let mut encoded = Vec::new();
    for (number, (keyspace, op)) in ops.iter().enumerate() {
        encode_op(&mut encoded, number == 0, *keyspace, *op);
    }
    let record = wal.append_batch(SeqNo(10), ops.len() as u32, &encoded).expect("appended");
    wal.flush().expect("flushed");
    let header = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
    let birth = u64::from_le_bytes(header[28..36].try_into().expect("a birth id"));
    (BirthId(birth), record.expect("a record of its own"))
}

fn reader_of(env: &Env, birth: BirthId) -> FrameReader {
    let mut reader = FrameReader::new(FileWindow::open(env, Path::new(PATH)).expect("opened"), 7, birth);
    reader.hold_one_frame();
    reader
}

/// Returns the first data record.
fn data_record(reader: &mut FrameReader) -> Option<Record> {
    loop {
        match reader.next().expect("read") {
            FrameStep::Record(record) if record.kind == RecordKind::Data => return Some(record),
            FrameStep::Record(_) => {}
            FrameStep::End | FrameStep::Damage { .. } => return None,
        }
    }
}

#[test]
fn a_long_batch_comes_back_operation_by_operation_wherever_frames_end() {
    for shift in 0..40 {
        let env = new_env(1);
        let parts = parts(shift);
        let ops = long_batch(&parts);
        let (birth, place) = log_of(&env, &ops);
        let mut reader = reader_of(&env, birth);
        let record = data_record(&mut reader).expect("a record");
        assert!(record.payload.is_empty() && record.frames > 3 && record.offset == place.offset);
        let checked = check(reader.payload_of(&record), SeqNo(9)).expect("whole");
        let expected = Checked { first_seq: SeqNo(10), last_seq: SeqNo(18), batches: 1, ops: 9 };
        assert_eq!(checked, expected, "shift {shift}");
        let values = ValueLogs::default();
        values.add(&ValueLog::new(&env, Path::new(PATH), LogNo(7), birth));
        for held_bytes_max in [0, 100_000, u64::MAX] {
            let check_value = |value: StreamedValue<'_>, wanted: &[u8], held_bytes_max| match value {
                StreamedValue::Held(value) => assert!(value == wanted),
                StreamedValue::At { at, bytes } => {
                    assert!(u64::from(bytes) > held_bytes_max);
                    let place = ValuePlace { log: LogNo(7), record: record.offset, at, bytes };
                    let read = values.read_whole(&place.encode(), &mut Reads::default()).expect("read");
                    assert!(read == wanted, "shift {shift}");
                }
            };
            let mut stream = OpStream::new(reader.payload_of(&record), held_bytes_max).expect("begun");
            for (number, (keyspace, op)) in ops.iter().enumerate() {
                let (is_first, got_keyspace, got) = stream.next().expect("read").expect("one more");
                assert_eq!((is_first, got_keyspace), (number == 0, *keyspace));
                match (got, *op) {
                    (StreamedOp::Put { key, value }, OpRef::Put { key: wanted, value: wanted_value }) => {
                        assert_eq!(key, wanted);
                        check_value(value, wanted_value, held_bytes_max);
                    }
                    (
                        StreamedOp::PutExpiring { key, expiry, stored },
                        OpRef::PutExpiring { key: wanted, stored: wanted_stored },
                    ) => {
                        assert_eq!(key, wanted);
                        assert_eq!(Expiry::split(wanted_stored).map(|(wanted, _)| wanted), Ok(expiry));
                        check_value(stored, wanted_stored, held_bytes_max);
                    }
                    (StreamedOp::Delete { key }, OpRef::Delete { key: wanted }) => assert_eq!(key, wanted),
                    (
                        StreamedOp::Merge { key, operand },
                        OpRef::Merge { key: wanted, operand: wanted_operand },
                    ) => assert!(key == wanted && operand == wanted_operand, "shift {shift}"),
                    (
                        StreamedOp::RangeDelete { start, end },
                        OpRef::RangeDelete { start: wanted, end: wanted_end },
                    ) => assert_eq!((start, end), (wanted, wanted_end)),
                    (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
                }
            }
            assert!(stream.next().expect("read").is_none());
        }
    }
}

#[test]
fn sequence_numbers_and_batch_beginnings_are_checked() {
    let env = new_env(1);
    let (birth, _) = log_of(&env, &long_batch(&parts(0)));
    let mut reader = reader_of(&env, birth);
    let record = data_record(&mut reader).expect("a record");
    for after in [SeqNo::MAX.0 - 5, u64::MAX] {
        assert!(matches!(check(reader.payload_of(&record), SeqNo(after)), Err(Stop::Malformed(_))));
    }
    // Records with valid checksums but malformed operations: a batch that lacks its beginning, a
    // value that extends past the end.
    let filler = bytes_of(PAYLOAD_BYTES_MAX, 1);
    for bad in [
        &[1, 1, b'k', 1, b'v'][..],
        &[0x81, 1, b'k', 0xff, 0xff, 0x7f],
        &[0x86, 1, b'k', 7, 1, 2, 3, 4, 5, 6, 7],
        &[0x89, 1, b'k'],
    ] {
        let env = new_env(2);
        let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(7), None, SeqNo(9)).expect("a log");
        let mut ops = bad.to_vec();
        ops.extend_from_slice(&filler);
        wal.append_large(SeqNo(10), 1, &[&ops]).expect("appended");
        wal.flush().expect("flushed");
        let header = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
        let birth = u64::from_le_bytes(header[28..36].try_into().expect("a birth id"));
        let mut reader = reader_of(&env, BirthId(birth));
        let record = data_record(&mut reader).expect("a record");
        let checked = check(reader.payload_of(&record), SeqNo(9));
        assert!(matches!(checked, Err(Stop::Malformed(_))), "{checked:?}");
    }
}

#[test]
fn damage_to_a_frame_is_found_by_the_value_that_lies_in_it() {
    let env = new_env(1);
    let value = bytes_of(200_000, 1);
    let (birth, record) = log_of(&env, &[(KeyspaceId(0), OpRef::Put { key: b"k", value: &value })]);
    let good = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
    let at = (record.ops_at + record.ops_bytes - value.len()) as u64;
    let place = ValuePlace { log: LogNo(7), record: record.offset, at, bytes: value.len() as u32 };
    for frame in 0..4u64 {
        for inside in [0, 4, 5, 6, 7, 1_000] {
            let struck = record.offset + frame * FRAME_BYTES_MAX as u64 + inside;
            let env = new_env(2);
            let mut bytes = good.clone();
            bytes[struck as usize] ^= 0x10;
            append_all(env.vfs.create(Path::new(PATH)).expect("a file").as_mut(), &bytes).expect("written");
            let values = ValueLogs::default();
            values.add(&ValueLog::new(&env, Path::new(PATH), LogNo(7), birth));
            match values.read_whole(&place.encode(), &mut Reads::default()).expect_err("damaged") {
                shamba_table::Error::Corruption { file, offset, structure, .. } => {
                    assert_eq!((file.as_path(), structure), (Path::new(PATH), "log frame"));
                    let beside = struck - inside;
                    assert!(offset == beside || offset == beside + 7, "{offset} for a flip at {struck}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // A malformed place and a log that is not in the list are errors.
    let values = ValueLogs::default();
    assert!(
        values.read_whole(&place.encode(), &mut Reads::default()).is_err()
            && values.value_bytes(b"short").is_err()
    );
    values.add(&ValueLog::new(&env, Path::new(PATH), LogNo(7), birth));
    assert!(
        values
            .read_whole(&ValuePlace { record: record.offset + 1, ..place }.encode(), &mut Reads::default())
            .is_err()
    );
    assert!(
        values.read_whole(&ValuePlace { bytes: 400_000, ..place }.encode(), &mut Reads::default()).is_err()
    );
    assert!(values.read_whole(&place.encode(), &mut Reads::default()).expect("read") == value);
}

#[test]
fn the_last_sequence_number_of_a_streamed_record_lies_below_the_maximum() {
    let env = new_env(1);
    let ops = long_batch(&parts(0)).len() as u64;
    let (birth, _) = log_of(&env, &long_batch(&parts(0)));
    let mut reader = reader_of(&env, birth);
    let record = data_record(&mut reader).expect("a record");
    let last_fit = SeqNo(SeqNo::MAX.0 - 1 - ops);
    let checked = check(reader.payload_of(&record), last_fit).expect("it fits exactly");
    let (first_seq, last_seq) = (last_fit.next(), SeqNo(SeqNo::MAX.0 - 1));
    assert_eq!(checked, Checked { first_seq, last_seq, batches: 1, ops });
    let checked = check(reader.payload_of(&record), last_fit.next());
    assert!(matches!(checked, Err(Stop::Malformed(_))), "{checked:?}");
}

#[test]
fn an_operand_of_the_maximum_length_is_streamed() {
    let env = new_env(1);
    let bytes = bytes_of(MAX_KEY_BYTES, 1);
    let operand = Operand { reach: 5, bytes: &bytes }.encode();
    assert_eq!(operand.len(), Operand::STORED_BYTES_MAX);
    let (birth, _) = log_of(&env, &[(KeyspaceId(0), OpRef::Merge { key: b"k", operand: &operand })]);
    let mut reader = reader_of(&env, birth);
    let record = data_record(&mut reader).expect("a record");
    assert_eq!(check(reader.payload_of(&record), SeqNo(9)).expect("whole").ops, 1);
    let mut stream = OpStream::new(reader.payload_of(&record), 0).expect("begun");
    match stream.next().expect("read") {
        Some((true, KeyspaceId(0), StreamedOp::Merge { key: b"k", operand: got })) => assert!(got == operand),
        other => panic!("{:?}", other.map(|(_, keyspace, _)| keyspace)),
    }
}

/// A frame behind which the value continues is read at once. Of any other frame, which may be
/// short, the header is read first.
#[test]
fn the_reads_of_a_value_are_counted() {
    let env = new_env(1);
    let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(7), None, SeqNo(9)).expect("a log");
    // The frames of the record begin 7 bytes before a page, so their payloads begin with it.
    let filler = vec![7; 4_089 - wal.flushed() as usize - 7 - 1 - 5];
    wal.append_op(SeqNo(10), KeyspaceId(0), OpRef::Put { key: b"f", value: &filler }).expect("appended");
    let value = bytes_of(200_000, 1);
    let record = wal
        .append_op(SeqNo(11), KeyspaceId(0), OpRef::Put { key: b"k", value: &value })
        .expect("appended")
        .expect("a record of its own");
    wal.flush().expect("flushed");
    assert_eq!(record.offset, 4_089);
    let begin = (record.ops_at + record.ops_bytes - value.len()) as u64;
    let values = ValueLogs::default();
    values.add(&wal.values());
    let one = FRAME_BYTES_MAX as u64;
    let room = PAYLOAD_BYTES_MAX - begin as usize;
    let last_bytes = begin as usize + value.len() - 3 * PAYLOAD_BYTES_MAX;
    for (bytes, due) in [
        (10, Reads { count: 2, bytes: one, pages: 17, pages_touched: 17 }),
        (room, Reads { count: 2, bytes: one, pages: 17, pages_touched: 17 }),
        (room + 1, Reads { count: 3, bytes: 2 * one, pages: 33, pages_touched: 34 }),
        (
            value.len(),
            Reads {
                count: 5,
                bytes: 3 * one + 7 + last_bytes as u64,
                pages: 3 * 16 + 2,
                pages_touched: 3 * 17 + 2,
            },
        ),
    ] {
        let place = ValuePlace { log: LogNo(7), record: record.offset, at: begin, bytes: bytes as u32 };
        let mut cost = Reads::default();
        assert!(values.read_whole(&place.encode(), &mut cost).expect("read") == value[..bytes]);
        assert_eq!(cost, due, "{bytes} bytes");
    }
}
