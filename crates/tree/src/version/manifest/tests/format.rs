//! Test of the example in `docs/formats/manifest.md`.

use super::*;
use crate::version::current::CURRENT;
use shamba_testkit::{FRAME_FIELDS, HEADER_FIELDS, PROMISE_FIELDS, annotated};

#[test]
fn the_example_of_the_format_page() {
    let env = new_env(1);
    let state = &states(&[ManifestEdit {
        settings: pairs(&[("digest", "xxh3")]),
        keyspaces_created: vec![(KeyspaceId(0), "default".to_owned(), Vec::new())],
        merge_operators: vec![(KeyspaceId(0), "shamba.add-u64".to_owned())],
        first_log: Some(LogNo(2)),
        next_id: Some(4),
        history: vec![opened(2, 0, 0, true)],
        ..ManifestEdit::default()
    }])[0];
    let mut writer = ManifestWriter::create(&env, Path::new(DIR), 3, state).expect("created");
    let table = table(5, "a", Some("m"));
    let edit = ManifestEdit {
        versions: vec![VersionEdit { keyspace: KeyspaceId(0), changes: vec![add(0, 6, table)] }],
        ..ManifestEdit::default()
    };
    writer.append(&edit).expect("appended");
    let snapshot = [
        (14, "setting digest = xxh3"),
        (12, "keyspace 0 created: default, no settings"),
        (4, "merge operator of keyspace 0"),
        (14, "its name shamba.add-u64"),
        (3, "first log 2"),
        (3, "last sequence 0"),
        (3, "next id 4"),
        (7, "history: log 2 begins an epoch"),
    ];
    let change = [
        (3, "tree changes, 44 bytes, keyspace 0"),
        (2, "add, 41 bytes"),
        (3, "level 0, run 6, age 6"),
        (1, "table 5"),
        (8, "birth id"),
        (2, "file bytes 10,005"),
        (2, "entries 300"),
        (1, "deletes 20"),
        (1, "range deletes 1"),
        (2, "smallest a"),
        (3, "upper m"),
        (1, "smallest sequence 5"),
        (2, "largest sequence 405"),
        (8, "bits per key 10.5"),
        (2, "range from a"),
        (3, "to m"),
        (2, "live bytes 9,005"),
    ];
    let page = include_str!("../../../../../../docs/formats/manifest.md");
    let current = annotated(&bytes_of(&env, CURRENT), &HEADER_FIELDS);
    let (frame, promise) = (&FRAME_FIELDS[..], &PROMISE_FIELDS[..]);
    let fields = [&HEADER_FIELDS[..], frame, &snapshot, promise, frame, &change, promise];
    let manifest = annotated(&bytes_of(&env, "MANIFEST-000003"), &fields.concat());
    let lacking: Vec<String> = [current, manifest].into_iter().filter(|text| !page.contains(text)).collect();
    assert!(lacking.is_empty(), "docs/formats/manifest.md lacks this:\n{}", lacking.join("----\n"));
}
