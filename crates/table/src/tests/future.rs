//! Tests with files of later builds: optional features are ignored, required ones are refused by
//! name.

use super::*;

const FOOTER_BYTES: usize = 256;

/// Changes the table's bytes and recomputes the checksums of header and footer.
pub(super) fn changed(rig: &Rig, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = rig.bytes();
    change(&mut bytes);
    let footer = bytes.len() - FOOTER_BYTES;
    for (start, sum_at) in [(0, 4_092), (footer, footer + 244)] {
        let sum = checksum(rig.options.birth, start as u64, &bytes[start..sum_at]);
        bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    }
    rig.replace(&bytes);
}

fn rig() -> Rig {
    let rig = Rig::new(Compression::None, 4_096);
    rig.write(&[row("k", 1, "v")], &[]);
    rig
}

fn refusal(rig: &Rig) -> String {
    match rig.open() {
        Err(error @ Error::Unsupported { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_optional_feature_and_a_section_of_an_unknown_kind_are_passed_over() {
    let rig = rig();
    changed(&rig, |bytes| {
        bytes[31] = 0x80;
        // Ten bytes of kind 9 after the properties, which are the fifth section.
        let footer = bytes.len() - FOOTER_BYTES;
        bytes.splice(footer..footer, [0xee; 10]);
        let place = footer + 10 + 5 * 17;
        assert_eq!(bytes[footer + 10 + 170], 5);
        assert!(bytes[place..place + 17].iter().all(|byte| *byte == 0));
        bytes[place] = 9;
        bytes[place + 1..place + 9].copy_from_slice(&(footer as u64).to_le_bytes());
        bytes[place + 9] = 10;
        bytes[footer + 10 + 170] = 6;
    });
    let table = rig.open().expect("opened");
    assert!(table.verify().is_empty());
    assert!(rig.get(&table, b"k", SeqNo::MAX).expect("a get").is_some());
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    assert_eq!((described.optional_features, described.sections.len()), (1 << 63, 5));
}

#[test]
fn a_newer_version_and_required_features_are_refused_whatever_the_checksum() {
    for (at, byte, named) in [
        (8, 2, "table version 2, this build reads 1"),
        (8, 0, "table version 0"),
        (16, 5, "unknown required table features 0x4"),
        (23, 0x80, "0x8000000000000000"),
    ] {
        let rig = rig();
        changed(&rig, |bytes| bytes[at] = byte);
        assert!(refusal(&rig).contains(named), "{}", refusal(&rig));
        let mut bytes = rig.bytes();
        bytes[4_092] ^= 1;
        rig.replace(&bytes);
        assert!(refusal(&rig).contains(named), "{}", refusal(&rig));
    }
}

#[test]
fn another_comparator_and_another_digest_kind_are_refused_by_name() {
    for (from_footer, byte, named) in [(180, b'B', "comparator \"Bytewise"), (171, 77, "digest kind 77")] {
        let rig = rig();
        changed(&rig, |bytes| {
            let footer = bytes.len() - FOOTER_BYTES;
            bytes[footer + from_footer] = byte;
        });
        assert!(refusal(&rig).contains(named), "{}", refusal(&rig));
    }
}
