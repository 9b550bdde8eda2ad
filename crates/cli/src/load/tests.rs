//! Each format: what it takes, and what it says of the rest.

use super::*;

fn read(format: Format, text: &str, key: Option<&str>, hex: bool) -> Vec<Result<(String, String), String>> {
    let mut records = Records::new(format, Box::new(text.as_bytes()), key, hex).expect("key column is known");
    let mut all = Vec::new();
    while let Some(item) = records.next().expect("memory does not fail") {
        all.push(match item {
            Item::Record { key, value } => {
                let text = |bytes: Vec<u8>| Notation::Text.show(&bytes).into_owned();
                Ok((text(key), text(value)))
            }
            Item::Malformed { line, reason } => Err(format!("{line}: {reason}")),
        });
    }
    all
}

fn ok(key: &str, value: &str) -> Result<(String, String), String> {
    Ok((key.into(), value.into()))
}

fn bad(text: &str) -> Result<(String, String), String> {
    Err(text.into())
}

#[test]
fn tsv() {
    assert_eq!(
        read(Format::Tsv, "a\t1\nb\t2\tmore\n\nno tab\nc\\x00\t\\xff\nd\\x0\tv\n\t\n", None, false),
        [
            ok("a", "1"),
            ok("b", "2\\x09more"),
            bad("3: empty line"),
            bad("4: no tab between key and value"),
            ok("c\\x00", "\\xff"),
            bad("6: key: \\x at byte 1 is not followed by two hex digits"),
            ok("", ""),
        ]
    );
    assert_eq!(
        read(Format::Tsv, "a\tb\tc\nx\ty\n", Some("3"), false),
        [ok("c", "a\\x09b"), bad("2: column 3 asked for, but the line has 2")]
    );
    assert_eq!(
        read(Format::Tsv, "6b\t76\n6\t76\n", None, true),
        [ok("k", "v"), bad("2: key: hex needs two digits a byte; 1 digits were given")]
    );
}

#[test]
fn csv() {
    assert_eq!(
        read(Format::Csv, "a,1\n\"b,\"\"x\",\"two\nlines\"\nc\nd,4\n", None, false),
        [
            ok("a", "1"),
            ok("b,\"x", "two\\x0alines"),
            bad("4: 1 fields where the first record has 2"),
            ok("d", "4"),
        ]
    );
    assert_eq!(read(Format::Csv, "id,name,note\n7,x,\"a,b\"\n", Some("name"), false), [ok("x", "7,\"a,b\"")]);
    for text in ["a,1\n\"b,2\nc,3\n", "a,1\n\"b,2\nc,3", "a,1\nb,\"2\nc,3\n"] {
        let wrong = bad("2: a quote is not closed before the end of the input");
        assert_eq!(read(Format::Csv, text, None, false), [ok("a", "1"), wrong], "{text:?}");
    }
    assert_eq!(
        read(Format::Csv, "a,\"1\n\"\r\n\nb,5\" disk", None, false),
        [ok("a", "1\\x0a"), ok("b", "5\" disk")]
    );
    assert_eq!(read(Format::Csv, "", None, false), []);
    assert_eq!(
        read(Format::Csv, "id,name\n7,x\n", Some("nom"), false),
        [bad("1: the first record names no column \"nom\"")]
    );
    assert_eq!(read(Format::Csv, "1,2\n", Some("2"), false), [ok("2", "1")]);
    assert_eq!(
        read(Format::Csv, "1,2\n", Some("3"), false),
        [bad("1: column 3 asked for, but the record has 2")]
    );
}

#[test]
fn jsonl() {
    let text = concat!(
        "{\"key\":\"a\",\"value\":\"1\"}\n",
        "{\"key\":\"b\",\"n\":2}\n",
        "{\"key\":7,\"value\":\"x\"}\n",
        "{\"value\":\"x\"}\n",
        "{\"key\":null}\n",
        "[1]\n",
        "{\"key\":\n",
        "\n",
    );
    assert_eq!(
        read(Format::Jsonl, text, None, false),
        [
            ok("a", "1"),
            ok("b", "{\"key\":\"b\",\"n\":2}"),
            ok("7", "x"),
            bad("4: no field \"key\""),
            bad("5: field \"key\" is no text and no number"),
            bad("6: no JSON object: invalid type: sequence, expected a map (column 1)"),
            bad("7: no JSON object: EOF while parsing a value (column 7)"),
            bad("8: empty line"),
        ]
    );
    assert_eq!(read(Format::Jsonl, "{\"id\":\"z\",\"value\":\"v\"}", Some("id"), false), [ok("z", "v")]);
}

#[test]
fn lines() {
    assert_eq!(
        read(Format::Lines, "/usr/bin\n/a\\x41\n\n", None, false),
        [ok("/usr/bin", ""), ok("/a\\x5cx41", ""), ok("", "")]
    );
    assert!(Records::new(Format::Lines, Box::new(&b""[..]), Some("1"), false).is_err());
    assert!(Records::new(Format::Tsv, Box::new(&b""[..]), Some("name"), false).is_err());
    assert!(Records::new(Format::Tsv, Box::new(&b""[..]), Some("0"), false).is_err());
}

#[test]
fn keys_beyond_the_limit_are_malformed() {
    let text = format!("{}\tv\n{}\tv\n", "k".repeat(65_535), "k".repeat(65_536));
    let all = read(Format::Tsv, &text, None, false);
    assert!(all[0].is_ok());
    assert_eq!(all[1], bad("2: the key has 65536 bytes; at most 65535 are allowed"));
}

#[test]
fn names_suggest_formats() {
    for (name, format) in [
        ("a.csv", Format::Csv),
        ("a.jsonl", Format::Jsonl),
        ("a.ndjson", Format::Jsonl),
        ("a.txt", Format::Lines),
        ("a.tsv", Format::Tsv),
        ("a", Format::Tsv),
    ] {
        assert_eq!(Format::of_name(std::path::Path::new(name)), format, "{name}");
    }
}
