//! Tests of damaged, forged and swapped value files: a wrong value never passes for a right one.

use super::*;
use crate::checksum::checksum;

#[test]
fn every_truncation_is_damage() {
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 64);
        rig.write(&entries(&[1, 64, 200, 65]));
        let intact = rig.bytes();
        for length in 0..intact.len() {
            rig.replace(&intact[..length]);
            let what = format!("{compression}: {length} of {} bytes", intact.len());
            assert_corrupt(&rig, rig.open(), &what);
            assert_corrupt(&rig, describe_value_file(&rig.env, &rig.path(), None), &what);
        }
        for more in [&[0][..], &[1; 64], &intact[intact.len() - FOOTER_BYTES..]] {
            rig.replace(&[&intact, more].concat());
            assert_corrupt(&rig, rig.open(), "longer");
        }
    }
}

#[test]
fn every_flipped_bit_is_found_and_spares_the_other_values() {
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 64);
        let entries = entries(&[1, 64, 200, 65, 40]);
        let (references, written) = rig.write(&entries);
        let intact = rig.bytes();
        let chunks = HEADER_BYTES..intact.len() - FOOTER_BYTES;
        for bit in 0..intact.len() * 8 {
            let at = bit / 8;
            let mut bytes = intact.clone();
            bytes[at] ^= 1 << (bit % 8);
            let what = format!("{compression}: bit {bit}");
            rig.replace(&bytes);
            if !chunks.contains(&at) {
                // A version or required feature that is not known.
                let may_be_newer = (8..12).contains(&at) || (16..24).contains(&at);
                match rig.open() {
                    Err(Error::Unsupported { .. }) if may_be_newer => {}
                    other => _ = assert_corrupt(&rig, other, &what),
                }
                // A reader that is open sees the change.
                rig.replace(&intact);
                let file = rig.open().expect("opened");
                rig.damage_in_place(&bytes);
                assert_eq!(file.verify().len(), 1, "{what}: {:?}", file.verify());
                continue;
            }
            let file = rig.open().expect("header and footer are intact");
            let mut lost = 0;
            for (reference, entry) in references.iter().zip(&entries) {
                match read(&file, *reference) {
                    Ok(value) => assert!(value == entry.payload, "{what}: {reference:?}"),
                    Err(error) => {
                        let (offset, structure) = assert_corrupt(&rig, Err::<(), _>(error), &what);
                        assert!(structure == "value chunk" && offset <= at as u64, "{what}");
                        assert!((reference.offset..reference.end()).contains(&(at as u64)), "{what}");
                        lost += 1;
                    }
                }
            }
            assert_eq!(lost, 1, "{what}");
            assert!(!file.verify().is_empty(), "{what}");
            assert_corrupt(&rig, file.check_written(&written), &what);
            assert_corrupt(&rig, describe_value_file(&rig.env, &rig.path(), None), &what);
        }
    }
}

/// The file with a new checksum for the structure at `from`, whose checksum is at `sum_at`.
fn resealed(mut bytes: Vec<u8>, from: usize, sum_at: usize) -> Vec<u8> {
    let sum = checksum(BIRTH, from as u64, &bytes[from..sum_at]);
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn no_byte_under_a_right_checksum_makes_a_reader_panic() {
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 64);
        let entries = entries(&[1, 64, 200, 65]);
        let (references, written) = rig.write(&entries);
        let intact = rig.bytes();
        let footer = intact.len() - FOOTER_BYTES;
        let mut sealed = vec![(0, 60), (footer, footer + 52)];
        for chunk in describe_value_file(&rig.env, &rig.path(), None).expect("described").chunks {
            sealed.push((chunk.offset as usize, (chunk.offset + chunk.bytes) as usize - 4));
        }
        assert_eq!(sealed.len(), 2 + 1 + 1 + 4 + 2);
        for (from, sum_at) in sealed {
            for at in from..sum_at {
                for mask in [0x01, 0x04, 0x80, 0xff] {
                    let mut forged = intact.clone();
                    forged[at] ^= mask;
                    rig.replace(&resealed(forged, from, sum_at));
                    let what = format!("{compression}: byte {at} ^ {mask:#04x}");
                    let Ok(file) = rig.open() else { continue };
                    for (reference, entry) in references.iter().zip(&entries) {
                        let _ = read(&file, *reference);
                        // Whatever the chunk has, it is not another value of the entry.
                        if let Ok(value) = read_checked(&file, *reference, entry) {
                            assert!(value == entry.payload, "{what}");
                        }
                    }
                    let _ = describe_value_file(&rig.env, &rig.path(), None)
                        .map(|described| described.to_string());
                    let found = file.verify();
                    if from == 0 || from == footer || compression != Compression::None {
                        continue;
                    }
                    // The check of the written file has the fingerprints, the full check has not.
                    assert_corrupt(&rig, file.check_written(&written), &what);
                    let is_length = at - from < 4;
                    assert!(!is_length || !found.is_empty(), "{what}");
                }
            }
        }
    }
}

#[test]
fn hostile_sums_of_a_footer_are_refused() {
    let rig = Rig::new(Compression::None, 64);
    rig.write(&entries(&[64, 128, 65]));
    let intact = rig.bytes();
    let footer = intact.len() - FOOTER_BYTES;
    let stored = (footer - HEADER_BYTES) as u64;
    let with = |field: usize, value: u64| {
        let mut bytes = intact.clone();
        bytes[footer + field * 8..footer + field * 8 + 8].copy_from_slice(&value.to_le_bytes());
        rig.replace(&resealed(bytes, footer, footer + 52));
        rig.open()
    };
    for (field, value) in [
        (0, 0),
        (0, 258),
        (0, u64::MAX),
        (0, u64::MAX / 10 + 1),
        (1, 0),
        (1, 2),
        (2, 0),
        (2, stored - 1),
        (2, stored + 1),
        (2, u64::MAX),
    ] {
        assert_corrupt(&rig, with(field, value), &format!("field {field} is {value}"));
    }
    // Sums that only the chunks contradict. Two values end in a full chunk or one of them.
    for (field, value, is_damage) in
        [(0, 1, false), (0, 5, false), (0, 6, true), (1, 258, true), (1, 256, true), (3, 0, false)]
    {
        let file = with(field, value).expect("opened");
        let damage = file.verify();
        assert_eq!(!damage.is_empty(), is_damage, "field {field} is {value}: {damage:?}");
    }
}

#[test]
fn a_reference_is_checked_before_anything_is_read() {
    let rig = Rig::new(Compression::None, 64);
    let (references, _) = rig.write(&entries(&[100, 200]));
    let file = rig.open().expect("opened");
    let good = references[1];
    let end = file.file_bytes() - FOOTER_BYTES as u64;
    assert_eq!(good.end(), end);
    for bad in [
        ValueFileRef { file: ValueFileId(32), ..good },
        ValueFileRef { offset: good.offset + 1, ..good },
        ValueFileRef { offset: u64::MAX, ..good },
        ValueFileRef { offset: 63, ..good },
        ValueFileRef { offset: 0, ..good },
        ValueFileRef { value_bytes: 0, ..good },
        ValueFileRef { value_bytes: 256 << 20, ..good },
        ValueFileRef { value_bytes: u32::MAX, stored_bytes: u32::MAX, ..good },
        ValueFileRef { stored_bytes: good.stored_bytes + 1, ..good },
        ValueFileRef { stored_bytes: 0, ..good },
    ] {
        let what = format!("{bad:?}");
        let mut cost = Reads::default();
        let (offset, structure) = assert_corrupt(&rig, file.read(bad, &mut cost), &what);
        assert_eq!((offset, structure), (bad.offset, "value reference"), "{what}");
        assert_corrupt(&rig, file.read_into(bad, &mut cost, &mut |_| panic!("a piece")), &what);
        assert_corrupt(&rig, file.decode(bad, &[]).map(|_| ()), &what);
        assert_corrupt(&rig, file.check_reference(bad), &what);
        assert_eq!(cost, Reads::default(), "{what}");
    }
    // Places that can be: the chunks there are not those of such a value.
    for bad in [
        ValueFileRef { offset: good.offset - 1, ..good },
        ValueFileRef { offset: 64, ..good },
        ValueFileRef { stored_bytes: good.stored_bytes - 1, ..good },
        ValueFileRef { value_bytes: 201, ..good },
        ValueFileRef { value_bytes: 199, stored_bytes: good.stored_bytes - 1, ..good },
    ] {
        assert_corrupt(&rig, read(&file, bad), &format!("{bad:?}"));
    }
    for stored in [&[][..], &[0; 3], &[0; 500], &[0xff; 500]] {
        assert_corrupt(&rig, file.decode(good, stored).map(|_| ()), "other bytes");
    }
    assert_corrupt(&rig, file.read_stored(100, u64::MAX, &mut Reads::default()), "a long read");
    file.check_reference(good).expect("a reference of this file");
}

#[test]
fn a_reference_that_was_moved_to_another_value_is_detected_by_its_fingerprint() {
    for (chunk_bytes, bytes) in [(65_536, 300), (64, 300)] {
        let rig = Rig::new(Compression::None, chunk_bytes);
        let mut entries = entries(&[bytes, bytes]);
        entries[1].kind = entries[0].kind;
        let (references, _) = rig.write(&entries);
        let file = rig.open().expect("opened");
        let moved = ValueFileRef { offset: references[1].offset, ..references[0] };
        // All that a get can see: intact chunks of the right length.
        assert!(read(&file, moved).expect("read") == entries[1].payload);
        let found = assert_corrupt(&rig, read_checked(&file, moved, &entries[0]), "moved");
        assert_eq!(found, (moved.offset, "value reference"));
        // Nor does the value pass for another entry with its own reference.
        assert_corrupt(&rig, read_checked(&file, references[1], &entries[0]), "another entry");
    }
}

#[test]
fn a_file_that_was_swapped_for_another_is_detected() {
    let rig = Rig { files: Arc::new(OpenFiles::new(1)), ..Rig::new(Compression::None, 65_536) };
    let entries = entries(&[100, 200]);
    let (references, _) = rig.write(&entries);
    let intact = rig.bytes();
    let mut other = Rig::new(Compression::None, 65_536);
    other.options.birth = BirthId(99);
    other.write(&entries);
    rig.replace(&other.bytes());
    let (offset, structure) = assert_corrupt(&rig, rig.open(), "swapped");
    assert_eq!((offset, structure), (0, "value file header"));
    // Swapped while the list of open files had closed it.
    rig.replace(&intact);
    let file = rig.open().expect("opened");
    let reopens = rig.files.reopens();
    let path = Path::new("/db/other");
    append_all(rig.env.vfs.create(path).expect("created").as_mut(), b"x").expect("written");
    let open_other = || {
        crate::file::TableFile::open(&rig.env.vfs, path, false, &rig.files).expect("opened");
    };
    open_other();
    assert!(read(&file, references[0]).expect("reopened") == entries[0].payload);
    assert_eq!(rig.files.reopens(), reopens + 1);
    open_other();
    rig.replace(&other.bytes());
    assert_corrupt(&rig, read(&file, references[0]), "swapped");
    assert!(!file.verify().is_empty());
}

#[test]
fn the_check_after_writing_finds_another_value_in_intact_chunks() {
    let rig = Rig::new(Compression::None, 65_536);
    let (references, written) = rig.write(&entries(&[100, 100]));
    let file = rig.open().expect("opened");
    file.check_written(&written).expect("checked");
    // An encoder that writes other bytes than it was given, with their checksum.
    let from = references[1].offset as usize;
    let mut bytes = rig.bytes();
    bytes[from + 20] ^= 1;
    rig.damage_in_place(&resealed(bytes, from, references[1].end() as usize - 4));
    assert!(file.verify().is_empty());
    let found = assert_corrupt(&rig, file.check_written(&written), "another value");
    assert_eq!(found, (from as u64, "value reference"));
}

#[test]
fn a_repair_reads_values_whatever_happened_to_header_and_footer() {
    let rig = Rig::new(Compression::Lz4, 65_536);
    let entries = entries(&[1, 64, 70_000, 65]);
    let (references, _) = rig.write(&entries);
    let intact = rig.bytes();
    let chunks = HEADER_BYTES..intact.len() - FOOTER_BYTES;
    let check = |bytes: &[u8], damaged: usize, what: &str| {
        rig.replace(bytes);
        let (file, damage) =
            ValueFile::open_damaged(&rig.env, Path::new(DIR), &rig.options_of(BIRTH)).expect(what);
        assert_eq!(damage.len(), damaged, "{what}: {damage:?}");
        for (reference, entry) in references.iter().zip(&entries) {
            match read_checked(&file, *reference, entry) {
                Ok(value) => assert!(value == entry.payload, "{what}"),
                Err(error) => {
                    assert!(error.is_corruption() && reference.end() > bytes.len() as u64, "{what}")
                }
            }
        }
    };
    check(&intact, 0, "intact");
    for bit in (0..intact.len() * 8).filter(|bit| !chunks.contains(&(bit / 8))) {
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(&bytes, 1, &format!("bit {bit}"));
    }
    for length in (0..intact.len()).step_by(61) {
        let without_header = usize::from(length < HEADER_BYTES);
        check(&intact[..length], 1 + without_header, &format!("{length} bytes"));
    }
    let mut bytes = intact.clone();
    bytes[..HEADER_BYTES].fill(0);
    bytes[chunks.end..].fill(0);
    check(&bytes, 2, "no header, no footer");
    // Another file, and one of a newer version, are not repaired.
    rig.replace(&intact);
    let open = |birth| ValueFile::open_damaged(&rig.env, Path::new(DIR), &rig.options_of(birth));
    assert_corrupt(&rig, open(BirthId(99)), "swapped");
    let mut newer = intact.clone();
    newer[8] = 2;
    rig.replace(&resealed(newer, 0, 60));
    assert!(matches!(open(BIRTH), Err(Error::Unsupported { .. })));
}
