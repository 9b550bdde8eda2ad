//! Tests of operands of merge operators and of expiring entries in a table: the feature bits that
//! keep builds away that do not know them, and the damage that no checksum reveals.

use super::*;
use crate::format::{FEATURE_EXPIRY, FEATURE_OPERANDS, FEATURE_VALUE_FILES};
use shamba_key::Expiry;

const FOOTER_BYTES: usize = 256;
const REQUIRED_AT: usize = 196;

fn operand_row(key: &str, seq: u64, value: &[u8]) -> Row {
    Row { kind: EntryKind::Merge, ..row(key, seq, value) }
}

fn rig(rows: &[Row]) -> Rig {
    let rig = Rig::new(Compression::None, 4_096);
    rig.write(rows, &[]);
    rig
}

fn required(rig: &Rig) -> u64 {
    let bytes = rig.bytes();
    let at = bytes.len() - FOOTER_BYTES + REQUIRED_AT;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// States other required features in the footer, under a right checksum.
fn require(rig: &Rig, bits: u64) {
    let mut bytes = rig.bytes();
    let footer = bytes.len() - FOOTER_BYTES;
    bytes[footer + REQUIRED_AT..footer + REQUIRED_AT + 8].copy_from_slice(&bits.to_le_bytes());
    let sum = checksum(rig.options.birth, footer as u64, &bytes[footer..footer + 244]);
    bytes[footer + 244..footer + 248].copy_from_slice(&sum.to_le_bytes());
    rig.replace(&bytes);
}

fn faults(rig: &Rig) -> Vec<String> {
    let damage = rig.open().expect("opened").verify();
    damage.iter().map(|error| error.to_string()).collect()
}

#[test]
fn a_table_states_operands_only_when_it_has_them() {
    assert_eq!(required(&rig(&[row("k", 1, "v")])), 0);
    let stored = Operand { reach: 3, bytes: b"+4" }.encode();
    let with = rig(&[operand_row("k", 9, &stored), row("k", 1, "v")]);
    assert_eq!(required(&with), FEATURE_OPERANDS);
    assert_eq!(faults(&with), [""; 0]);
    let table = with.open().expect("opened");
    let entry = with.get(&table, b"k", SeqNo::MAX).expect("a get").expect("an entry");
    assert_eq!((entry.kind, &entry.value[..]), (EntryKind::Merge, &stored[..]));
    let described = describe(&with.env, &with.path(), None).expect("described");
    assert_eq!(described.operands, 1);
    assert!(described.to_string().contains("\n  operands          1\n"), "{described}");
}

#[test]
fn a_build_that_does_not_know_a_feature_refuses_the_table_by_name() {
    // As a build without operands refuses the bit of operands.
    let rig = rig(&[row("k", 1, "v")]);
    require(&rig, FEATURE_VALUE_FILES << 1);
    let error = rig.open().expect_err("unknown");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("000007.sst") && text.contains("unknown required table features 0x10"), "{text}");
}

#[test]
fn an_operand_that_the_footer_does_not_state_is_damage() {
    let rig = rig(&[operand_row("k", 9, &Operand::single(b"+4").encode())]);
    require(&rig, 0);
    let found = faults(&rig);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("entry 0: an operand in a table whose footer states none"), "{found:?}");
}

#[test]
fn bytes_that_are_no_operand_are_damage_to_a_check_and_a_gap_to_a_salvage() {
    for (stored, named) in [
        (&b""[..], "an operand without a flag"),
        (b"\x07abc", "operand flag 7"),
        (b"\x01abc", "combined operands of 4 bytes"),
    ] {
        let rig = rig(&[row("a", 1, "v"), operand_row("k", 9, stored)]);
        let found = faults(&rig);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains(&format!("damaged data block at offset 4096: entry 1: {named}")),
            "{found:?}"
        );
        let (rows, gaps, _) = salvage::salvaged(&rig, None).expect("opened");
        assert_eq!((rows.len(), gaps.len()), (0, 1), "one block, which is damaged");
        assert!(gaps[0].error.to_string().contains(named), "{}", gaps[0].error);
    }
    let stored = vec![0; MAX_OPERAND_BYTES + 2];
    let found = faults(&rig(&[operand_row("k", 9, &stored)]));
    assert!(found[0].contains("an operand of 65536 bytes"), "{found:?}");
}

#[test]
fn a_table_states_expiring_entries_only_when_it_has_them() {
    let expiring =
        |key: &str, ms: u64| Row { kind: EntryKind::PutWithExpiry, ..row(key, 1, Expiry(ms).encode(b"v")) };
    let rig = rig(&[row("a", 1, "v"), expiring("b", 2_000), expiring("c", 1_000)]);
    assert_eq!((required(&rig), faults(&rig)), (FEATURE_EXPIRY, vec![]));
    let table = rig.open().expect("opened");
    let told = table.summary().expiring.expect("two");
    assert_eq!((told.count, told.first(), told.last()), (2, Expiry(1_000), Expiry(2_000)));
    assert_eq!((told.bytes, told.of_bytes), (20, 22));
    let entry = rig.get(&table, b"b", SeqNo::MAX).expect("a get").expect("an entry");
    assert_eq!((entry.kind, &entry.value[..]), (EntryKind::PutWithExpiry, &Expiry(2_000).encode(b"v")[..]));
    require(&rig, 0);
    let found = faults(&rig);
    assert!(found[0].contains("entry 1: an expiry time in a table whose footer states none"), "{found:?}");
}

#[test]
fn an_expiring_entry_without_a_whole_expiry_is_damage_to_a_check_and_a_gap_to_a_salvage() {
    let short = Row { kind: EntryKind::PutWithExpiry, ..row("k", 9, "7 bytes") };
    let rig = rig(&[row("a", 1, "v"), short]);
    let found = faults(&rig);
    assert!(found[0].contains("entry 1: a value with an expiry time has 7 bytes"), "{found:?}");
    let (rows, gaps, _) = salvage::salvaged(&rig, None).expect("opened");
    assert_eq!((rows.len(), gaps.len()), (0, 1));
}

#[test]
fn a_table_states_its_older_versions_with_a_filter_and_without() {
    for bits_per_key in [10.0, 0.0] {
        let mut rig = Rig::new(Compression::None, 4_096);
        rig.options.bits_per_key = bits_per_key;
        rig.write(&[row("a", 3, "v"), row("a", 2, "v"), row("a", 1, "v"), row("b", 4, "v")], &[]);
        let table = rig.open().expect("opened");
        assert_eq!((table.summary().entries, table.summary().older_versions), (4, 2));
        assert!(table.verify().is_empty());
    }
}
