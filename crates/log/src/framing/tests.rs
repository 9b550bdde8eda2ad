//! Tests of the framing: splitting into frames, promises found behind holes, and the example of
//! `docs/formats/log.md`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, Layer, MemFs, RandomFile, Rng, SeededRng, SimFs, Vfs, append_all, read_file};
use shamba_table::BirthId;

use shamba_testkit::{FRAME_FIELDS, HEADER_FIELDS, PROMISE_FIELDS, annotated, memory_env as new_env};

use super::frame::{FRAME_HEADER_BYTES, FileIdentity, FrameKind, PAYLOAD_BYTES_MAX, PROMISE_BYTES};
use super::*;
use crate::Error;

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

/// The identity of the files that the tests write byte by byte.
const FILE: FileIdentity = FileIdentity { number: 7, birth: BirthId(9) };

/// Returns an environment with a file of these bytes.
fn file_of(bytes: &[u8]) -> Env {
    let env = new_env(1);
    append_all(env.vfs.create(Path::new(PATH)).expect("a file").as_mut(), bytes).expect("written");
    env
}

/// Returns a file with a header and these frames, whose checksums are valid.
fn framed(frames: &[(FrameKind, &[u8])]) -> Vec<u8> {
    let mut bytes = FileHeader::new(FILE.birth, FILE.number).encode(FileKind::Wal);
    for &(kind, payload) in frames {
        let mut frame = [&[0; FRAME_HEADER_BYTES], payload].concat();
        FILE.seal(kind, bytes.len() as u64, &mut frame);
        bytes.extend_from_slice(&frame);
    }
    bytes
}

fn window(env: &Env) -> FileWindow {
    FileWindow::open(env, Path::new(PATH)).expect("opened")
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
    let stranger = Some(BirthId(writer.birth().0 ^ 1));
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

#[test]
fn a_frame_out_of_its_place_is_damage_that_names_its_kind() {
    let damage = |frames: &[(FrameKind, &[u8])]| match reader(&file_of(&framed(frames))).next() {
        Ok(FrameStep::Damage { offset, detail }) => (offset, detail),
        step => panic!("{step:?}"),
    };
    for (kind, name) in [(FrameKind::Middle, "middle"), (FrameKind::Last, "last")] {
        let detail = format!("a frame of kind {name} outside a record");
        assert_eq!(damage(&[(kind, b"abc")]), (HEADER_BYTES, detail));
    }
    let full = vec![7; PAYLOAD_BYTES_MAX];
    let second = HEADER_BYTES + (FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX) as u64;
    let promise = FILE.promise(0, second);
    for (kind, name, payload) in [
        (FrameKind::Full, "full", &b"abc"[..]),
        (FrameKind::First, "first", &full),
        (FrameKind::Head, "head", b"abc"),
        (FrameKind::End, "end", b""),
        (FrameKind::Promise, "promise", &promise[FRAME_HEADER_BYTES..]),
    ] {
        let detail = format!("a frame of kind {name} inside a record");
        assert_eq!(damage(&[(FrameKind::First, &full), (kind, payload)]), (second, detail));
    }
    // The place of a payload byte is computed: all frames but the last must be full.
    let short = vec![7; PAYLOAD_BYTES_MAX - 1];
    let detail = format!("a frame of {} bytes that is not the last of its record", short.len());
    let frames = [(FrameKind::First, &short[..]), (FrameKind::Last, b"abc")];
    assert_eq!(damage(&frames), (HEADER_BYTES, detail.clone()));
    let frames = [(FrameKind::First, &full[..]), (FrameKind::Middle, &short), (FrameKind::Last, b"abc")];
    assert_eq!(damage(&frames), (second, detail));
}

#[test]
fn a_record_of_one_full_frame_is_held_and_a_longer_one_is_not() {
    let env = new_env(1);
    let mut writer = create(&env);
    let payload = vec![7; PAYLOAD_BYTES_MAX + 1];
    for bytes in [PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1] {
        writer.append_record(&[&payload[..bytes]]).expect("buffered");
    }
    writer.flush().expect("flushed");
    let mut reader = reader(&env);
    reader.hold_one_frame();
    for (bytes, held) in [(PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX), (PAYLOAD_BYTES_MAX + 1, 0)] {
        let FrameStep::Record(record) = reader.next().expect("read") else { panic!("no record") };
        assert_eq!((record.payload_bytes, record.payload.len()), (bytes as u64, held));
    }
}

#[test]
fn a_promise_is_found_wherever_the_search_continues_and_up_to_the_last_byte() {
    // The search proceeds in strides: a promise is found on both sides of each of their ends.
    for stride in [128 << 10, 256 << 10] {
        for at in (stride - 2 * PROMISE_BYTES..stride + 4 * PROMISE_BYTES).step_by(5) {
            let at = HEADER_BYTES as usize + at;
            let mut bytes = vec![0xa5; at];
            bytes.extend_from_slice(&FILE.promise(at as u64 - 1, at as u64));
            bytes.extend_from_slice(&[0xa5; 300]);
            let found = survey::highest_promise(&mut window(&file_of(&bytes)), 7, None).expect("read");
            assert_eq!(found, at as u64 - 1, "a promise at {at}");
        }
    }
    let mut bytes = vec![0xa5; HEADER_BYTES as usize];
    bytes.extend_from_slice(&FILE.promise(40, HEADER_BYTES));
    assert_eq!(survey::highest_promise(&mut window(&file_of(&bytes)), 7, None).expect("read"), 40);
}

#[test]
fn a_promise_inside_an_intact_record_is_content_of_it() {
    let inside = HEADER_BYTES + FRAME_HEADER_BYTES as u64;
    let promise = FILE.promise(50, inside);
    let mut bytes = framed(&[(FrameKind::Full, &promise)]);
    let highest = |bytes: &[u8]| {
        survey::highest_promise(&mut window(&file_of(bytes)), 7, Some(FILE.birth)).expect("read")
    };
    assert_eq!(highest(&bytes), 0, "promises lie between records");
    let end = bytes.len() as u64;
    bytes.extend_from_slice(&FILE.promise(20, end));
    assert_eq!(highest(&bytes), 20);
    // Once the record is damaged, its extent is unknown.
    bytes[HEADER_BYTES as usize] ^= 1;
    assert_eq!(highest(&bytes), 50);
}

#[test]
fn only_the_bytes_of_the_range_decide_whether_it_is_zero() {
    let mut bytes = vec![0; 300_000];
    (bytes[9], bytes[200_000]) = (1, 1);
    let mut window = window(&file_of(&bytes));
    for (from, end, is_zero) in [
        (10, 30, true),
        (9, 30, false),
        (0, 9, true),
        (0, 10, false),
        (10, 200_000, true),
        (10, 200_001, false),
        (199_990, 200_000, true),
        (200_001, 300_000, true),
        (200_000, 200_000, true),
        (300_000, 300_000, true),
    ] {
        assert_eq!(window.is_zero(from, end).expect("read"), is_zero, "{from}..{end}");
    }
}

/// A file system whose files end 10 bytes before the length that they state.
#[derive(Debug)]
struct EndsEarly(MemFs);

#[derive(Debug)]
struct EarlyEnd(Arc<dyn RandomFile>);

impl Layer for EndsEarly {
    fn below(&self) -> &dyn Vfs {
        &self.0
    }
    fn over_reads(&self, file: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(EarlyEnd(file))
    }
}

impl RandomFile for EarlyEnd {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = (self.len()? - 10).saturating_sub(offset);
        let bytes = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.0.read_at(offset, &mut buf[..bytes])
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[test]
fn a_file_that_ends_inside_its_stated_length_is_damaged() {
    let env = Env::deterministic(Arc::new(EndsEarly(MemFs::new())), 1);
    append_all(env.vfs.create(Path::new(PATH)).expect("a file").as_mut(), &[7; 400_000]).expect("written");
    let mut window = window(&env);
    assert_eq!(window.at(0, 100).expect("read"), &[7; 100]);
    match window.at(399_000, 100).expect_err("the chunk ends early") {
        Error::Corruption { file, offset, structure, .. } => {
            assert_eq!((file.as_path(), offset, structure), (Path::new(PATH), 399_000, "log file"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(window.at(0, 100).expect("read"), &[7; 100], "a failed read leaves no bytes behind");
}

/// The files of [`Vfs::create_log`] have space that is allocated in advance.
#[test]
fn only_a_log_is_created_as_a_file_for_many_small_appends() {
    for kind in [FileKind::Wal, FileKind::Manifest, FileKind::Values] {
        let env = Env::deterministic(Arc::new(SimFs::new()), 1);
        let mut writer = FrameWriter::create(&env, Path::new(PATH), kind, 7).expect("a file");
        writer.append_record(&[b"abc"]).expect("buffered");
        writer.flush().expect("flushed");
        let file_bytes = env.vfs.open_read(Path::new(PATH)).expect("opened").len().expect("a length");
        assert_eq!(file_bytes > writer.flushed(), kind == FileKind::Wal, "{kind:?} of {file_bytes} bytes");
    }
}

#[test]
fn the_memory_of_a_writer_covers_its_buffer_and_shrinks_with_it() {
    let env = new_env(1);
    let mut writer = create(&env);
    assert!(writer.memory_bytes() as u64 >= HEADER_BYTES, "the file header is in the buffer");
    for _ in 0..100 {
        writer.append_record(&[&[7; 10_000]]).expect("buffered");
    }
    assert!(writer.buffered() > 1_000_000 && writer.memory_bytes() as u64 >= writer.buffered());
    let before = writer.memory_bytes();
    writer.flush().expect("flushed");
    assert!(writer.memory_bytes() < before, "{} of {before} bytes are kept", writer.memory_bytes());
}
