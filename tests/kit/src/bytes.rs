//! Annotated bytes: how the examples of `docs/formats/` are printed and checked.

/// Bytes as lower-case hex, a blank between groups of four.
pub fn hex(bytes: &[u8]) -> String {
    let groups: Vec<String> =
        bytes.chunks(4).map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    groups.join(" ")
}

/// The fields of a file, one a line: offset, bytes, meaning. The sizes must cover `bytes` exactly.
pub fn annotated(bytes: &[u8], fields: &[(usize, &str)]) -> String {
    let mut text = String::new();
    let mut at = 0;
    for (size, meaning) in fields {
        let line = format!("{at:>5}  {:<35}  {meaning}", hex(&bytes[at..at + size]));
        text.push_str(line.trim_end());
        text.push('\n');
        at += size;
    }
    assert_eq!(at, bytes.len(), "the fields do not cover the file");
    text
}

/// The fields of a file header.
pub const HEADER_FIELDS: [(usize, &str); 7] = [
    (8, "magic"),
    (4, "version"),
    (8, "required features"),
    (8, "optional features"),
    (8, "birth id"),
    (8, "number"),
    (4, "checksum of the above"),
];

/// The fields of a frame header.
pub const FRAME_FIELDS: [(usize, &str); 3] = [(4, "frame: checksum"), (1, "kind"), (2, "payload length")];

/// The fields of a frame that holds a promise.
pub const PROMISE_FIELDS: [(usize, &str); 5] = [
    (4, "frame: checksum"),
    (1, "kind: promise"),
    (2, "payload length"),
    (8, "all below is synced"),
    (4, "birth tag"),
];
