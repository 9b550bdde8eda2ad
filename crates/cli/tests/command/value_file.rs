//! `shamba table` of a value file: describes the example of `docs/formats/value-file.md` as the
//! page says.

use std::fs;

use crate::support::{Dir, run};

const PAGE: &str = include_str!("../../../../docs/formats/value-file.md");

/// The fenced block of the page after this heading.
fn fenced(heading: &str) -> &'static str {
    let after = PAGE.split_once(heading).expect("the heading").1;
    let block = after.split_once("```text\n").expect("a block").1;
    block.split_once("```").expect("its end").0
}

/// The bytes of the page's file.
fn example() -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in fenced("### The bytes").lines() {
        let hex = line.split_once("  |").expect("the text").0;
        let hex = hex.split_whitespace().skip(1);
        bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")));
    }
    bytes
}

#[test]
fn a_value_file_is_described() {
    let dir = Dir::new();
    let path = dir.path("000031.values");
    fs::write(&path, example()).expect("writable");
    assert_eq!(run(["table", &path]).ok(), fenced("### In words"));
    let object = run(["table", &path, "--json"]).json();
    assert_eq!(object["schema"], "shamba.value-file/1");
    assert_eq!((&object["values"], &object["payload_bytes"]), (&2.into(), &43.into()));
    assert_eq!(object["chunks"].as_array().map(Vec::len), Some(2));
    let json_page = include_str!("../../../../docs/json.md");
    let chunk = object["chunks"][0].as_object().expect("an object");
    for name in object.as_object().expect("an object").keys().chain(chunk.keys()) {
        assert!(json_page.contains(&format!("`{name}`")), "field {name} is not described");
    }
    let advice = run(["wal", &path]).fails(64);
    assert!(advice.contains("this is a value file: use `shamba table`"), "{advice}");
    let mut damaged = example();
    damaged[80] ^= 1;
    fs::write(&path, damaged).expect("writable");
    let told = run(["table", &path]).fails(2);
    assert!(told.contains("damaged value chunk at offset 64"), "{told}");
}
