//! Tests of each format: accepted records, and messages for malformed ones.

use super::*;

fn read(format: Format, text: &str, key: Option<&str>, hex: bool) -> Vec<Result<(String, String), String>> {
    read_rows(format, text, key, hex, false)
}

/// Like [`read`]; `no_header` says that the first row of a csv file is data.
fn read_rows(
    format: Format,
    text: &str,
    key: Option<&str>,
    hex: bool,
    no_header: bool,
) -> Vec<Result<(String, String), String>> {
    let mut records =
        Records::new(format, Box::new(text.as_bytes()), key, hex, no_header).expect("key column is known");
    let mut all = Vec::new();
    while let Some(item) = records.next().expect("memory does not fail") {
        all.push(match item {
            Item::Record { key, value, lifetime } => {
                let text = |bytes: Vec<u8>| Notation::Text.show(&bytes).into_owned();
                let until = match lifetime {
                    Lifetime::OfKeyspace => String::new(),
                    Lifetime::Lasting => {
                        assert!(hex, "text says nothing of it");
                        String::new()
                    }
                    Lifetime::Until(expiry_ms) => format!(" until {expiry_ms}"),
                };
                Ok((text(key), text(value) + &until))
            }
            Item::Fatal { line, reason } | Item::Malformed { line, reason } => {
                Err(format!("{line}: {reason}"))
            }
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
        [ok("c", "a\\x09b"), bad("2: column 3 requested, but the line has 2 columns")]
    );
    assert_eq!(
        read(Format::Tsv, "6b\t76\n6\t76\n", None, true),
        [ok("k", "v"), bad("2: key: hex needs two digits a byte; 1 digits were given")]
    );
}

#[test]
fn the_third_column_of_a_dump_is_an_expiry() {
    assert_eq!(
        read(Format::Tsv, "6b\t76\t1700000000000\n6b\t\t0\n6b\t76\t\n6b\t76\t-1\n6b\t76\t1\t2\n", None, true),
        [
            ok("k", "v until 1700000000000"),
            ok("k", " until 0"),
            bad("3: the third column is not a time in milliseconds"),
            bad("4: the third column is not a time in milliseconds"),
            bad("5: the third column is not a time in milliseconds"),
        ]
    );
    // Text has no such column.
    assert_eq!(read(Format::Tsv, "6b\t76\t17\n", None, false), [ok("6b", "76\\x0917")]);
}

#[test]
fn csv_without_a_header() {
    let rows = |text: &str, key| read_rows(Format::Csv, text, key, false, true);
    assert_eq!(
        rows("a,1\n\"b,\"\"x\",\"two\nlines\"\nc\nd,4\n", None),
        [
            ok("a", "1"),
            ok("b,\"x", "two\\x0alines"),
            bad("4: 1 fields where the first record has 2"),
            ok("d", "4"),
        ]
    );
    for text in ["a,1\n\"b,2\nc,3\n", "a,1\n\"b,2\nc,3", "a,1\nb,\"2\nc,3\n"] {
        let wrong = bad("2: a quote is not closed up to the end of the input");
        assert_eq!(rows(text, None), [ok("a", "1"), wrong], "{text:?}");
    }
    assert_eq!(rows("a,\"1\n\"\r\n\nb,5\" disk", None), [ok("a", "1\\x0a"), ok("b", "5\" disk")]);
    assert_eq!(rows("", None), []);
    assert_eq!(rows("1,2\n", Some("2")), [ok("2", "1")]);
    assert_eq!(rows("1,2\n", Some("3")), [bad("1: column 3 requested, but the record has 2 columns")]);
}

#[test]
fn csv_with_a_header() {
    let rows = |text: &str, key| read(Format::Csv, text, key, false);
    assert_eq!(rows("name,id\nx,7\ny,8\n", None), [ok("x", "7"), ok("y", "8")]);
    assert_eq!(rows("id,name,note\n7,x,\"a,b\"\n", Some("name")), [ok("x", "7,\"a,b\"")]);
    assert_eq!(rows("id,name\n7,x\n", Some("2")), [ok("x", "7")]);
    assert_eq!(rows("", None), []);
    assert_eq!(rows("id,name\n", None), []);
    // The byte order mark that spreadsheets write is not part of the first name.
    assert_eq!(rows("\u{feff}id,name\n7,x\n", Some("id")), [ok("7", "x")]);
    assert_eq!(
        rows("id,name\n7,x\n", Some("nom")),
        [bad("1: the header has no column \"nom\"; it has \"id\", \"name\"; use one of these with --key")]
    );
    assert_eq!(rows("1,2\n", Some("3")), [bad("1: column 3 requested, but the header has 2 columns")]);
    let many: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let said = rows(&format!("{}\n", many.join(",")), Some("nom"));
    assert!(matches!(&said[..], [Err(text)] if text.contains("\"c19\", and 10 more; ")), "{said:?}");
}

#[test]
fn where_the_key_is_in_words() {
    let place = |format, text: &str, key, no_header| {
        let mut records =
            Records::new(format, Box::new(text.as_bytes()), key, false, no_header).expect("known");
        while records.next().expect("memory does not fail").is_some() {}
        (records.key_place(), records.has_read_header())
    };
    let header = "id,name\n7,x\n";
    assert_eq!(place(Format::Csv, header, None, false), ("column 1 \"id\"".into(), true));
    assert_eq!(place(Format::Csv, header, Some("name"), false), ("column 2 \"name\"".into(), true));
    assert_eq!(place(Format::Csv, header, Some("2"), true), ("column 2".into(), false));
    assert_eq!(place(Format::Tsv, "a\t1\n", None, false), ("column 1".into(), false));
    assert_eq!(place(Format::Jsonl, "", Some("id"), false), ("field \"id\"".into(), false));
    assert_eq!(place(Format::Lines, "a\n", None, false), ("the line".into(), false));
}

#[test]
fn jsonl() {
    let text = concat!(
        "{\"key\":\"a\",\"value\":\"1\"}\n",
        "{\"key\":\"b\",\"n\":2}\n",
        "{\"key\":7,\"value\":\"x\"}\n",
        "{\"value\":\"x\"}\n",
        "{\"key\":null}\n",
        "{\"key\":18446744073709551615,\"value\":\"x\"}\n",
        "{\"key\":-9223372036854775808,\"value\":\"x\"}\n",
        "{\"key\":18446744073709551616,\"value\":\"x\"}\n",
        "{\"key\":1.0,\"value\":\"x\"}\n",
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
            bad("5: field \"key\" is neither a string nor a number"),
            ok("18446744073709551615", "x"),
            ok("-9223372036854775808", "x"),
            bad("8: field \"key\" is not a whole number of 64 bits; quote it"),
            bad("9: field \"key\" is not a whole number of 64 bits; quote it"),
            bad("10: not a JSON object: invalid type: sequence, expected a map (column 1)"),
            bad("11: not a JSON object: EOF while parsing a value (column 7)"),
            bad("12: empty line"),
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
    assert!(Records::new(Format::Lines, Box::new(&b""[..]), Some("1"), false, false).is_err());
    assert!(Records::new(Format::Tsv, Box::new(&b""[..]), Some("name"), false, false).is_err());
    assert!(Records::new(Format::Tsv, Box::new(&b""[..]), Some("0"), false, false).is_err());
    assert!(Records::new(Format::Tsv, Box::new(&b""[..]), None, false, true).is_err());
    assert!(Records::new(Format::Csv, Box::new(&b""[..]), Some("name"), false, true).is_err());
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
