//! Tests of the framing: splitting into frames, promises found behind holes, and the example of
//! `docs/formats/log.md`.

use std::path::Path;

use shamba_env::{Env, Rng, SeededRng, append_all, read_file};

use shamba_testkit::{FRAME_FIELDS, HEADER_FIELDS, PROMISE_FIELDS, annotated, memory_env as new_env};

use super::frame::{FRAME_HEADER_BYTES, PAYLOAD_BYTES_MAX};
use super::*;

const PATH: &str = "/f";

fn create(env: &Env) -> FrameWriter {
    FrameWriter::create(env, Path::new(PATH), FileKind::Wal, 7).expect("a file")
}

fn reader(env: &Env) -> FrameReader {
    let mut window = FileWindow::open(env, Path::new(PATH)).expect("opened");
    let header = window.at(0, HEADER_BYTES as usize).expect("read");
    let header = FileHeader::decode(FileKind::Wal, Some(7), header).expect("a header");
    FrameReader::new(window, 7, header.birth)
}

#[test]
fn records_of_every_size_round_trip() {
    let env = new_env(1);
    let mut writer = create(&env);
    let sizes = [
        0,
        1,
        PAYLOAD_BYTES_MAX - 1,
        PAYLOAD_BYTES_MAX,
        PAYLOAD_BYTES_MAX + 1,
        2 * PAYLOAD_BYTES_MAX,
        300_000,
    ];
    let record = |size: usize| (0..size).map(|i| (i * 7 % 251) as u8).collect::<Vec<u8>>();
    for size in sizes {
        let payload = record(size);
        let (first, second) = payload.split_at(size / 3);
        writer.append_record(&[first, &[], second]).expect("buffered");
    }
    writer.sync().expect("synced");
    let mut reader = reader(&env);
    for size in sizes {
        let FrameStep::Record(got) = reader.next().expect("read") else { panic!("{size}: no record") };
        assert_eq!(got.kind, RecordKind::Data);
        assert!(got.payload == record(size), "{size} bytes differ");
        assert_eq!(got.frames as usize, size.div_ceil(PAYLOAD_BYTES_MAX).max(1));
    }
    assert!(matches!(reader.next().expect("read"), FrameStep::End));
}

#[test]
fn what_joins_a_frame_shares_a_record_until_the_frame_is_full_or_flushed() {
    let env = new_env(1);
    let mut writer = create(&env);
    let mut join = |bytes: &[u8]| writer.join(b">", bytes.len(), |buffer| buffer.extend_from_slice(bytes));
    join(b"one").expect("buffered");
    join(b"two").expect("buffered");
    let rest = vec![7; PAYLOAD_BYTES_MAX - 7];
    join(&rest).expect("fits exactly");
    join(b"three").expect("buffered");
    assert_eq!(writer.offset(), HEADER_BYTES + (2 * FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX + 6) as u64);
    writer.flush().expect("flushed");
    writer.join(b">", 4, |buffer| buffer.extend_from_slice(b"four")).expect("buffered");
    writer.append_record(&[b"alone"]).expect("buffered");
    writer.flush().expect("flushed");
    let mut reader = reader(&env);
    for expected in
        [[b">onetwo", &rest[..]].concat(), b">three".to_vec(), b">four".to_vec(), b"alone".to_vec()]
    {
        let FrameStep::Record(got) = reader.next().expect("read") else { panic!("no record") };
        assert!(got.payload == expected, "{} bytes, {} expected", got.payload.len(), expected.len());
    }
    assert!(matches!(reader.next().expect("read"), FrameStep::End));
    assert_eq!(reader.offset(), writer.flushed());
}

#[test]
fn a_promise_is_repeated_in_every_sector_once_there_is_one() {
    let env = new_env(1);
    let mut writer = create(&env);
    let put = |writer: &mut FrameWriter| {
        for _ in 0..40 {
            writer.append_record(&[&[7; 100]]).expect("buffered");
        }
    };
    put(&mut writer);
    writer.sync().expect("synced");
    put(&mut writer);
    writer.append_promise().expect("buffered");
    let promised_from = writer.offset();
    put(&mut writer);
    writer.flush().expect("flushed");
    let mut reader = reader(&env);
    let mut promised = std::collections::BTreeSet::new();
    let mut begun = std::collections::BTreeSet::new();
    while let FrameStep::Record(record) = reader.next().expect("read") {
        let sector = record.offset / 512;
        match record.kind {
            RecordKind::Promise => {
                assert!(promised.insert(sector), "two promises begin in sector {sector}");
                assert_eq!(record.promise, writer.synced());
            }
            _ if record.offset >= promised_from => _ = begun.insert(sector),
            _ => assert!(promised.is_empty(), "a promise before the first sync"),
        }
    }
    assert!(begun.len() >= 8 && begun.is_subset(&promised), "{begun:?} {promised:?}");
}

#[test]
fn a_reader_stays_at_damage_and_says_the_same_again() {
    let env = new_env(1);
    let mut writer = create(&env);
    writer.append_record(&[&[1; 100_000]]).expect("buffered");
    writer.append_record(&[b"after"]).expect("buffered");
    writer.flush().expect("flushed");
    let mut bytes = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
    bytes[90_000] ^= 1;
    let env = new_env(2);
    append_all(env.vfs.create(Path::new(PATH)).expect("a file").as_mut(), &bytes).expect("written");
    let mut reader = reader(&env);
    for _ in 0..3 {
        let FrameStep::Damage { offset, .. } = reader.next().expect("read") else { panic!("not noticed") };
        assert_eq!(offset, HEADER_BYTES + (FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX) as u64);
        assert_eq!(reader.offset(), HEADER_BYTES);
    }
}

#[test]
fn a_promise_is_found_behind_any_hole() {
    let env = new_env(1);
    let mut writer = create(&env);
    let rng = SeededRng::new(11);
    // Longer than several strides of the search, so that frames straddle the stride boundaries.
    for _ in 0..400 {
        writer.append_record(&[&vec![7; (rng.next_u64() % 3_000) as usize]]).expect("buffered");
    }
    writer.sync().expect("synced");
    let promised = writer.synced();
    writer.append_promise().expect("buffered");
    writer.flush().expect("flushed");
    let good = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
    let highest = |bytes: &[u8], birth: bool| {
        let env = new_env(2);
        append_all(env.vfs.create(Path::new(PATH)).expect("a file").as_mut(), bytes).expect("written");
        let mut window = FileWindow::open(&env, Path::new(PATH)).expect("opened");
        survey::highest_promise(&mut window, 7, birth.then_some(writer.birth())).expect("read")
    };
    assert_eq!(highest(&good, true), promised);
    for _ in 0..60 {
        let mut bytes = good.clone();
        let start = (rng.next_u64() % promised) as usize;
        let end = start + (rng.next_u64() % (promised - start as u64)) as usize;
        bytes[start..end].fill(if start.is_multiple_of(2) { 0 } else { 0xa5 });
        assert_eq!(highest(&bytes, true), promised, "a hole from {start} to {end}");
        // The search also works without the file header.
        assert_eq!(highest(&bytes, false), promised, "a hole from {start} to {end}");
    }
    // A promise at another offset, or of an earlier file of the same number, is not valid.
    let mut bytes = good.clone();
    bytes.drain(100..101);
    bytes.extend_from_slice(&good[100..]);
    assert_eq!(highest(&bytes, true), 0);
    let mut window = FileWindow::open(&env, Path::new(PATH)).expect("opened");
    let stranger = Some(shamba_table::BirthId(writer.birth().0 ^ 1));
    assert_eq!(survey::highest_promise(&mut window, 7, stranger).expect("read"), 0);
}

/// A log that is sealed while another thread reads it loses the space that was set aside for it.
#[test]
fn a_window_of_a_file_that_becomes_shorter_ends_with_it() {
    let env = new_env(3);
    let bytes = vec![7; 200_000];
    let mut file = env.vfs.create(Path::new(PATH)).expect("a file");
    append_all(file.as_mut(), &bytes).expect("written");
    let mut window = FileWindow::open(&env, Path::new(PATH)).expect("opened");
    file.truncate(150_000).expect("shorter");
    assert_eq!(window.at(149_990, 100).expect("read"), &bytes[..10]);
    assert_eq!(window.at(180_000, 100).expect("read"), &[0; 0]);
    assert_eq!(window.file_bytes(), 150_000);
}

#[test]
fn the_example_of_the_format_page() {
    let env = new_env(1);
    let mut writer = create(&env);
    writer.join(b"he", 3, |buffer| buffer.extend_from_slice(b"llo")).expect("buffered");
    writer.sync().expect("synced");
    writer.append_promise().expect("buffered");
    writer.flush().expect("flushed");
    let bytes = read_file(env.vfs.as_ref(), Path::new(PATH)).expect("read");
    let fields = [&HEADER_FIELDS[..], &FRAME_FIELDS[..], &[(5, "payload: hello")], &PROMISE_FIELDS[..]];
    let text = annotated(&bytes, &fields.concat());
    let page = include_str!("../../../../docs/formats/log.md");
    assert!(page.contains(&text), "docs/formats/log.md lacks this example:\n{text}");
}
