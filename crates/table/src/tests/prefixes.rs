//! Prefixes in the filter of a table.

use std::collections::BTreeSet;

use shamba_key::Prefix;

use super::*;

/// Two hundred users with a few entries each, keys without a delimiter, and prefixes that are keys.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for user in (0..400).step_by(2) {
        for entry in 0..user % 5 {
            rows.push(row(format!("user{user:03}:{entry}"), 900 - entry, "value"));
        }
    }
    rows.push(row("user000:", 1, "a key that is its own prefix"));
    rows.push(row("user002:0", 1, "an older version"));
    rows.push(row("us", 1, "shorter"));
    rows.push(row("users", 1, "no delimiter"));
    sorted(rows)
}

fn may_contain(table: &TableReader, name: &[u8]) -> bool {
    table.filter().expect("a filter").may_contain(table.digest_fn().digest(name))
}

#[test]
fn a_filter_holds_the_prefixes_of_all_keys_and_denies_most_others() {
    for layout in ["blocked", "standard", "ribbon"] {
        for extractor in [Prefix::Fixed(8), Prefix::Capped(8), Prefix::Delimited(b':')] {
            let mut rig = Rig::new(Compression::None, 4_096);
            rig.options.filter_layout = layout.parse().expect("a layout");
            rig.options.prefix = Some(extractor);
            let rows = rows();
            rig.write(&rows, &[]);
            let table = rig.open().expect("opened");
            assert_eq!(table.prefix(), Some(extractor));
            let keys: BTreeSet<&[u8]> = rows.iter().map(|row| &row.key[..]).collect();
            let prefixes: BTreeSet<&[u8]> = keys.iter().filter_map(|key| extractor.of(key)).collect();
            assert!(prefixes.len() > 150, "{}", prefixes.len());
            for name in keys.union(&prefixes) {
                assert!(may_contain(&table, name), "{layout} {extractor}: {}", name.escape_ascii());
            }
            let absent = (1..400).step_by(2).map(|user| format!("user{user:03}:"));
            let denied = absent.filter(|prefix| !may_contain(&table, prefix.as_bytes())).count();
            assert!(denied > 180, "{layout} {extractor}: {denied} of 200 absent prefixes are denied");
            let described = describe(&rig.env, &rig.path(), None).expect("described");
            let only_prefixes = prefixes.difference(&keys).count() as u64;
            assert_eq!((described.prefix, described.filter_prefixes), (Some(extractor), only_prefixes));
            assert!(
                described.to_string().contains(&format!("{only_prefixes} by {extractor}")),
                "{described}"
            );
            let damage = table.verify();
            assert!(damage.is_empty(), "{damage:?}");
        }
    }
}

#[test]
fn a_filter_without_an_extractor_is_as_before() {
    let rig = Rig::new(Compression::None, 4_096);
    rig.write(&rows(), &[]);
    let table = rig.open().expect("opened");
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    assert_eq!((table.prefix(), described.prefix, described.filter_prefixes), (None, None, 0));
    let denied =
        (0..400).step_by(2).filter(|user| !may_contain(&table, format!("user{user:03}:").as_bytes()));
    assert!(denied.count() > 180, "prefixes are in a filter without an extractor");
}

#[test]
fn no_prefixes_are_recorded_without_a_filter() {
    let mut rig = Rig::new(Compression::None, 4_096);
    (rig.options.prefix, rig.options.bits_per_key) = (Some(Prefix::Fixed(4)), 0.0);
    rig.write(&rows(), &[]);
    assert_eq!(rig.open().expect("opened").prefix(), None);
    (rig.options.prefix, rig.options.id) = (Some(Prefix::Fixed(0)), TableId(8));
    let refused = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect_err("no bytes");
    assert!(refused.to_string().contains("fixed:0"), "{refused}");
}
