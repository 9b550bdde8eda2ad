//! Test of the worked example in `docs/formats/table.md`: its hex dump must equal the writer's
//! output.

use super::*;

const PAGE: &str = include_str!("../../../../docs/formats/table.md");

/// The table of the page: three entries, a range tombstone, a filter.
fn example() -> Rig {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.options.id = TableId(12);
    let mut rows = [row("apple", 7, "red"), row("apple", 3, ""), row("pear", 5, "green")];
    rows[1].kind = EntryKind::Delete;
    rig.write(&rows, &[tombstone("b", Some("c"), 6)]);
    rig
}

/// Sixteen bytes per line, like `hexdump -C`; lines of zeros after a line of zeros become one `*`.
pub(super) fn hexdump(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut zeros = 0;
    for (number, line) in bytes.chunks(16).enumerate() {
        let last = (number + 1) * 16 >= bytes.len();
        zeros = if line.iter().all(|byte| *byte == 0) { zeros + 1 } else { 0 };
        if zeros > 1 && !last {
            if zeros == 2 {
                text.push_str("*\n");
            }
            continue;
        }
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown: String =
            line.iter().map(|byte| if byte.is_ascii_graphic() { *byte as char } else { '.' }).collect();
        text.push_str(&format!("{:08x}  {:<47}  |{shown}|\n", number * 16, hex.join(" ")));
    }
    text
}

/// The fenced block of the page after this heading.
fn fenced(heading: &str) -> &'static str {
    fenced_in(PAGE, heading)
}

/// The fenced block of a page after this heading.
pub(super) fn fenced_in(page: &'static str, heading: &str) -> &'static str {
    let after = page.split_once(heading).map(|(_, after)| after).expect("the heading");
    let block = after.split_once("```text\n").map(|(_, block)| block).expect("a block");
    block.split_once("```").map(|(block, _)| block).expect("its end")
}

#[test]
fn the_page_shows_the_bytes_that_the_writer_makes() {
    let found = hexdump(&example().bytes());
    assert!(found == fenced("### The bytes"), "the page differs; the bytes are\n{found}");
}

#[test]
fn the_page_shows_what_describe_prints() {
    let rig = example();
    let found = describe(&rig.env, &rig.path(), None).expect("described").to_string();
    assert!(found == fenced("### In words"), "the page differs; the words are\n{found}");
}

/// The bytes of a dump.
pub(super) fn undumped(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in dump.lines().filter(|line| *line != "*") {
        let (place, rest) = line.split_once("  ").expect("a place");
        bytes.resize(usize::from_str_radix(place, 16).expect("a number"), 0);
        let hex = rest.split_once("  |").expect("the text").0;
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")));
    }
    bytes
}

fn check_example(rig: &Rig) {
    let table = rig.open().expect("opened");
    assert!(table.verify().is_empty());
    for (key, seq, expected) in [
        ("apple", 9, Some((7, EntryKind::Put, "red"))),
        ("apple", 6, Some((3, EntryKind::Delete, ""))),
        ("apple", 2, None),
        ("pear", 5, Some((5, EntryKind::Put, "green"))),
        ("plum", 9, None),
    ] {
        let found = rig.get(&table, key.as_bytes(), SeqNo(seq)).expect("a get");
        let found = found.map(|entry| (entry.seq.0, entry.kind, entry.value.to_vec()));
        let expected = expected.map(|(seq, kind, value)| (seq, kind, value.as_bytes().to_vec()));
        assert_eq!(found, expected, "{key} at {seq}");
    }
    let mut iter = table.iter(true);
    iter.seek_to_last().expect("a seek");
    for key in ["pear", "apple", "apple"] {
        assert_eq!(iter.key(), key.as_bytes());
        iter.prev().expect("a step");
    }
    assert!(!iter.valid());
}

#[test]
fn the_example_reads_back_from_the_page() {
    let rig = example();
    rig.replace(&undumped(fenced("### The bytes")));
    check_example(&rig);
}

/// The same table as older writers wrote it, without tagged blocks. It must stay readable.
#[test]
fn a_table_of_plain_data_blocks_is_read_as_ever() {
    let rig = example();
    let bytes = undumped(include_str!("plain_blocks.hex"));
    assert_eq!((bytes[16], bytes[4_096]), (0, 1), "no required feature, layout plain");
    rig.replace(&bytes);
    check_example(&rig);
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    assert_eq!(described.blocks[0].layout, "plain");
}

#[test]
fn the_page_shows_the_stored_forms_of_operands() {
    let single = Operand::single(b"+1");
    let combined = Operand { reach: 3, bytes: b"+6" };
    let line = |operand: Operand<'_>, text: &str| {
        let hex: Vec<String> = operand.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:<37}{text}\n", hex.join(" "))
    };
    let found = line(single, "flag 0, operand +1") + &line(combined, "flag 1, reach 3, operand +6");
    assert!(found == fenced("## Operands"), "the page differs; the bytes are\n{found}");
}
