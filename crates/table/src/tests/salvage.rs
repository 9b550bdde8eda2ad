//! Salvage of small tables: a flip takes the block or the value that it hits, and nothing else; nothing is made up.

use super::*;
use crate::format::{Section, SectionKind};

fn rig(compression: Compression) -> Rig {
    let mut rig = Rig::new(compression, 256);
    rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 128 };
    rig
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..60u64 {
        rows.push(row(
            format!("path/to/file{i:02}"),
            400 - i,
            "some words, some words".repeat(1 + i as usize % 3),
        ));
        rows.push(row(format!("path/to/file{i:02}"), 200 - i, i.to_string()));
        if i % 15 == 4 {
            let value: Vec<u8> = (0..700u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            rows.push(row(format!("path/to/large{i:02}"), 500 + i, value));
        }
    }
    rows[5].kind = EntryKind::Delete;
    rows[5].value.clear();
    sorted(rows)
}

/// What is left: rows with their values, and whether range tombstones are.
fn salvaged(rig: &Rig, birth: Option<BirthId>) -> Result<(Vec<Row>, Vec<Gap>, Arc<Salvage>)> {
    let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, birth)?);
    let (mut walk, mut rows, mut gaps) = (table.walk(), Vec::new(), Vec::new());
    while let Some(SalvagedEntry { key, seq, kind, value }) = walk.next_entry()? {
        let (kind, value) = match kind {
            EntryKind::ValueRef => match table.read_large(&value) {
                Ok(value) => (EntryKind::Put, value),
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    continue;
                }
            },
            kind => (kind, value.to_vec()),
        };
        rows.push(Row { key, seq, kind, value });
    }
    gaps.extend(walk.take_gaps());
    Ok((rows, gaps, table))
}

fn section(rig: &Rig, kind: SectionKind) -> Section {
    let table = describe(&rig.env, &rig.path(), None).expect("undamaged");
    table.sections.iter().copied().find(|section| section.kind == kind).expect("it is there")
}

#[test]
fn a_flip_takes_what_it_hits_and_nothing_else() {
    for compression in Compression::ALL {
        let (rig, rows) = (rig(compression), rows());
        let tombstones = [tombstone("path/to/a", Some("path/to/c"), 9), tombstone("x", None, 1_000)];
        rig.write(&rows, &tombstones);
        let (data, ranges) = (section(&rig, SectionKind::Data), section(&rig, SectionKind::RangeTombstones));
        let blocks = describe(&rig.env, &rig.path(), None).expect("undamaged").blocks.len();
        assert!(blocks > 5, "{blocks} blocks");
        let whole = rig.bytes();
        let birth = Some(rig.options.birth);
        let (mut kept, mut flips) = (0, 0);
        for at in (0..whole.len()).step_by(if compression == Compression::None { 13 } else { 5 }) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            rig.replace(&bytes);
            let (left, gaps, table) = salvaged(&rig, birth).expect("something is left");
            let is_in = |section: Section| (section.offset..section.end()).contains(&(at as u64));
            assert!(left.iter().all(|row| rows.contains(row)), "byte {at}: something is made up");
            if !is_in(data) {
                assert_eq!(left, rows, "byte {at}: an undamaged block is gone");
                assert!(
                    gaps.iter().all(|gap| gap.upper.as_ref().is_some_and(|upper| *upper <= gap.lower)),
                    "{gaps:?}"
                );
            }
            for missing in rows.iter().filter(|row| !left.contains(row) && row.value.len() < 300) {
                let told = |gap: &Gap| {
                    gap.lower[..] <= missing.key[..]
                        && gap.upper.as_ref().is_none_or(|upper| missing.key[..] < upper[..])
                };
                assert!(gaps.iter().any(told), "byte {at}: {missing:?} is lost outside {gaps:?}");
            }
            match is_in(ranges) {
                true => assert!(table.lost_tombstones().is_some()),
                false => assert_eq!(table.range_tombstones(), tombstones, "byte {at}"),
            }
            kept += left.len();
            flips += rows.len();
        }
        assert!(kept * 20 > flips * 19, "{kept} of {flips} are kept");
    }
}

#[test]
fn without_index_and_footer_blocks_are_found() {
    for compression in Compression::ALL {
        let (rig, rows) = (rig(compression), rows());
        rig.write(&rows, &[]);
        let data = section(&rig, SectionKind::Data);
        let mut bytes = rig.bytes();
        bytes.truncate(data.end() as usize);
        rig.replace(&bytes);
        let (left, _, table) = salvaged(&rig, None).expect("something is left");
        assert_eq!(left, rows);
        assert!(table.lost_tombstones().is_some(), "nobody knows of any");
        // A block in the middle is gone: the rest is found behind it.
        let middle = 4096 + (bytes.len() - 4096) / 2;
        bytes[middle..middle + 20].fill(0xa5);
        rig.replace(&bytes);
        let (left, gaps, _) = salvaged(&rig, None).expect("something is left");
        assert!(
            left.len() < rows.len() && left.len() * 10 > rows.len() * 8,
            "{} of {}",
            left.len(),
            rows.len()
        );
        assert!(left.iter().all(|row| rows.contains(row)));
        assert!(gaps.iter().any(|gap| gap.lower.starts_with(b"path") && gap.upper.is_some()), "{gaps:?}");
    }
}

#[test]
fn a_table_says_of_which_keyspace_it_is() {
    let rig = rig(Compression::None);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let origin = Origin { keyspace: 12, name: "users".to_owned() };
    writer.note_origin(origin.clone());
    writer.add(b"key", SeqNo(1), EntryKind::Put, b"value").expect("added");
    writer.finish().expect("finished");
    rig.open().expect("a reader passes over it");
    let (_, _, table) = salvaged(&rig, None).expect("undamaged");
    assert_eq!(table.origin(), Some(&origin));
}
