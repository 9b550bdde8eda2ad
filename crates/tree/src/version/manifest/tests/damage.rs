//! Damage sweep of the manifest and of `CURRENT`: every byte flipped, every length.

use super::*;
use crate::version::current::CURRENT;
use shamba_log::framing::frame::{FileIdentity, Frame, FrameHeader, FrameKind};
use shamba_log::framing::{FileHeader, FileKind, HEADER_BYTES};

struct FrameAt {
    start: u64,
    end: u64,
    promise: u64,
    is_edit: bool,
}

fn frames(bytes: &[u8]) -> Vec<FrameAt> {
    let header = FileHeader::decode(FileKind::Manifest, Some(3), &bytes[..HEADER_BYTES as usize]);
    let file = FileIdentity { number: 3, birth: header.expect("a header").birth };
    let mut frames = Vec::new();
    let mut at = HEADER_BYTES as usize;
    while at < bytes.len() {
        let header = FrameHeader::decode(&bytes[at..]).expect("a frame header");
        let frame = Frame::decode(file, header, at as u64, &bytes[at..]).expect("a frame");
        let (end, promise) = (at + header.frame_bytes(), frame.promise);
        let is_edit = header.kind != FrameKind::Promise;
        frames.push(FrameAt { start: at as u64, end: end as u64, promise, is_edit });
        at = end;
    }
    frames
}

/// Loads with the content of one file replaced.
fn load_with(name: &str, bytes: &[u8]) -> crate::version::Result<Option<Loaded>> {
    let env = new_env(1);
    written(&env, &life());
    let path = Path::new(DIR).join(name);
    env.vfs.unlink(&path).expect("removed");
    put_file(&env, &path, bytes);
    load(&env)
}

/// Compares the load of a damaged manifest with the result that the promises imply. `place` is the
/// offset of the bad frame, `promise` the highest promise that survived, and `edits` the number of
/// edits that end before the damage.
fn check(result: crate::version::Result<Option<Loaded>>, place: u64, promise: u64, edits: usize, told: &str) {
    let states = states(&life());
    match result {
        Ok(loaded) => {
            assert!(place >= promise && edits > 0, "{told}: not noticed");
            let loaded = loaded.expect("a database");
            let got = text(&ManifestState { next_id: 0, ..loaded.state });
            let expected = text(&ManifestState { next_id: 0, ..states[edits - 1].clone() });
            assert_eq!(got, expected, "{told}");
        }
        Err(error) => {
            assert!(error.is_corruption(), "{told}: {error:?}");
            assert!(place < promise || edits == 0, "{told}: a torn tail is no corruption: {error}");
            assert!(error.file().expect("a file").ends_with("MANIFEST-000003"), "{told}: {error}");
        }
    }
}

fn manifest() -> Vec<u8> {
    let env = new_env(1);
    written(&env, &life());
    bytes_of(&env, "MANIFEST-000003")
}

fn edits_before(frames: &[FrameAt], place: u64) -> usize {
    frames.iter().filter(|frame| frame.is_edit && frame.end <= place).count()
}

#[test]
fn every_flipped_byte_of_a_manifest() {
    let good = manifest();
    let frames = frames(&good);
    assert_eq!(frames.iter().filter(|frame| frame.is_edit).count(), 4, "an edit is one frame");
    assert!(frames.iter().filter(|frame| !frame.is_edit).count() >= 4, "each edit has its promise");
    for at in 0..good.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= mask;
            let result = load_with("MANIFEST-000003", &bytes);
            let told = format!("byte {at} mask {mask:x}");
            if (8..20).contains(&at) && (at, mask) != (8, 1) {
                assert!(matches!(result.expect_err("newer"), FileError::Unsupported { .. }), "{told}");
                continue;
            }
            let hit = |frame: &FrameAt| (frame.start..frame.end).contains(&(at as u64));
            let place = frames.iter().find(|frame| hit(frame)).map_or(0, |f| f.start);
            let spared = frames.iter().filter(|frame| !hit(frame));
            let promise = spared.map(|frame| frame.promise).max().unwrap_or(0);
            check(result, place, promise, edits_before(&frames, place), &told);
        }
    }
}

#[test]
fn every_length_of_a_manifest() {
    let good = manifest();
    let frames = frames(&good);
    for cut in 0..good.len() {
        let result = load_with("MANIFEST-000003", &good[..cut]);
        let read = frames.iter().filter(|frame| frame.end <= cut as u64);
        let promise = read.map(|frame| frame.promise).max().unwrap_or(0);
        let place = match frames.iter().any(|frame| frame.end == cut as u64) {
            true => cut as u64,
            false => frames.iter().map(|f| f.start).filter(|&start| start <= cut as u64).max().unwrap_or(0),
        };
        check(result, place, promise, edits_before(&frames, place), &format!("cut at {cut}"));
    }
}

#[test]
fn every_flip_and_every_length_of_current() {
    let env = new_env(1);
    written(&env, &life());
    let good = bytes_of(&env, CURRENT);
    assert_eq!(good.len() as u64, HEADER_BYTES);
    let refused = |bytes: &[u8], told: &str| {
        let error = load_with(CURRENT, bytes).expect_err(told);
        assert!(error.is_corruption() || matches!(error, FileError::Unsupported { .. }), "{told}: {error:?}");
        if error.is_corruption() {
            assert!(error.file().expect("a file").ends_with(CURRENT), "{told}: {error}");
        }
    };
    for at in 0..good.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= mask;
            refused(&bytes, &format!("byte {at} mask {mask:x}"));
        }
        refused(&good[..at], &format!("cut at {at}"));
    }
    let longer: Vec<u8> = good.iter().copied().chain([0]).collect();
    refused(&longer, "a byte too many");
}

#[test]
fn an_error_says_why_the_damage_is_no_torn_edit() {
    let good = manifest();
    let frames = frames(&good);
    let why = |bytes: &[u8]| load_with("MANIFEST-000003", bytes).expect_err("damage").to_string();
    let no_snapshot = why(&good[..frames[0].end as usize - 1]);
    assert!(
        no_snapshot.contains("the snapshot was synced before the manifest became current"),
        "{no_snapshot}"
    );
    let second = frames.iter().filter(|frame| frame.is_edit).nth(1).expect("an edit");
    let mut bytes = good.clone();
    bytes[second.end as usize - 1] ^= 1;
    let promise = frames.iter().map(|frame| frame.promise).max().expect("a promise");
    let below = why(&bytes);
    assert!(below.ends_with(&format!("; everything below {promise} was synced")), "{below}");
}

#[test]
fn a_torn_edit_is_described() {
    let good = manifest();
    let last = frames(&good).into_iter().rfind(|frame| frame.is_edit).expect("an edit");
    let cut = last.end as usize - 1;
    let torn = load_with("MANIFEST-000003", &good[..cut]).expect("loaded").expect("a database").torn;
    let torn = torn.expect("half an edit");
    assert_eq!((torn.offset, torn.bytes), (last.start, last.end - 1 - last.start));
    let shown = torn.to_string();
    let expected = format!(
        "/db/MANIFEST-000003: unfinished edit of {} bytes at offset {} ignored: {}",
        torn.bytes, torn.offset, torn.detail
    );
    assert_eq!(shown, expected);
}

/// A promise that lies on the border of two sectors is written twice. The first one begins where
/// it says that the synced bytes end, so damage to it alone harms no synced byte.
#[test]
fn damage_to_a_promise_of_what_lies_before_it_is_a_torn_tail() {
    let mut found = 0;
    for padding in 0..512 {
        let env = new_env(1);
        let edits = life();
        let padded =
            ManifestEdit { settings: pairs(&[("pad", &"x".repeat(padding))]), ..ManifestEdit::default() };
        written(&env, &[edits[0].clone(), padded.clone(), edits[1].clone()]);
        let mut bytes = bytes_of(&env, "MANIFEST-000003");
        let frames = frames(&bytes);
        let is_repeated = |pair: &&[FrameAt]| pair.iter().all(|frame| !frame.is_edit);
        let Some([first, again]) = frames.windows(2).find(is_repeated) else { continue };
        assert_eq!((first.start, first.promise), (again.promise, again.promise));
        if frames.iter().filter(|frame| frame.is_edit && frame.end <= first.start).count() != 2 {
            continue;
        }
        found += 1;
        bytes.truncate(again.end as usize);
        bytes[first.start as usize] ^= 1;
        let path = Path::new(DIR).join("MANIFEST-000003");
        env.vfs.unlink(&path).expect("removed");
        put_file(&env, &path, &bytes);
        let loaded = load(&env).expect("no damage to synced bytes").expect("a database");
        assert_eq!(loaded.torn.map(|torn| torn.offset), Some(first.start), "{padding}");
        let expected = states(&[edits[0].clone(), padded]).remove(1);
        assert_eq!(text(&ManifestState { next_id: 3, ..loaded.state }), text(&expected), "{padding}");
    }
    assert!(found > 0, "no promise is repeated");
}
