//! The lines of a trace: encoding and decoding of one operation each, as text.
//!
//! The letters `I U D Q S R` are those of the K-V-Workload-Generator, so its files are valid
//! traces; `X N P K G` are additions for other operations of a database. A line is split at single
//! spaces. Spaces, backslashes and bytes that are not printable ASCII are written `\xNN`, the empty
//! key `\e`, and a value of which only the length is known `*LENGTH`.
//!
//! The functions have no state. The format with an example is in `docs/formats/trace.md`.

use std::borrow::Cow;
use std::io::Write as _;

use shamba_key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// First line of a recorded trace; the number is the version of the format.
pub const HEADER: &str = "# shamba trace 1";

/// Prefix of the first line of a trace of any version.
const HEADER_OF_ANY: &[u8] = b"# shamba trace ";
/// Prefix of the last line of a complete trace.
const END: &[u8] = b"# end ";

/// The value of a put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// The bytes of the value.
    Bytes(Cow<'a, [u8]>),
    /// Only the length of the value is known.
    Length(usize),
}

impl Payload<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Length(bytes) => *bytes,
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// `I KEY VALUE`: a put; in generated files of a new key, in recorded ones of any key.
    Insert {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The value.
        value: Payload<'a>,
    },
    /// `U KEY VALUE`: a put of an existing key.
    Update {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The value.
        value: Payload<'a>,
    },
    /// `D KEY`: a delete.
    Delete {
        /// The key.
        key: Cow<'a, [u8]>,
    },
    /// `R FROM TO`: a range delete, `TO` included.
    DeleteThrough {
        /// The first key deleted.
        from: Cow<'a, [u8]>,
        /// The last key deleted.
        to: Cow<'a, [u8]>,
    },
    /// `X FROM TO` or `X FROM`: a range delete, `TO` excluded, or without an end.
    DeleteUpTo {
        /// The first key deleted.
        from: Cow<'a, [u8]>,
        /// The first key after the range; `None`: no end.
        to: Option<Cow<'a, [u8]>>,
    },
    /// `Q KEY`, `Q KEY +` or `Q KEY -`: a lookup, and whether it found a value.
    Get {
        /// The key.
        key: Cow<'a, [u8]>,
        /// Whether it found a value; `None` if unknown.
        found: Option<bool>,
    },
    /// `S FROM TO`: a scan, `TO` included.
    Scan {
        /// The first key.
        from: Cow<'a, [u8]>,
        /// The last key.
        to: Cow<'a, [u8]>,
    },
    /// `N FROM COUNT`: a scan of `COUNT` entries from the first key at or after `FROM`.
    Next {
        /// The start key.
        from: Cow<'a, [u8]>,
        /// Number of entries read.
        entries: u64,
    },
    /// `P FROM COUNT`: a backward scan of `COUNT` entries from the last key at or before `FROM`.
    Previous {
        /// The start key.
        from: Cow<'a, [u8]>,
        /// Number of entries read.
        entries: u64,
    },
    /// `K NAME`: the following lines apply to this keyspace; lines before the first `K` apply to
    /// `default`.
    Keyspace {
        /// Its name.
        name: Cow<'a, str>,
    },
    /// `G NAME`: the keyspace is dropped.
    Gone {
        /// Its name.
        name: Cow<'a, str>,
    },
    /// `# shamba trace N` as the first line: the trace is in version `N` of this format.
    Header {
        /// The version.
        version: u64,
    },
    /// `# end N`: the last line of a complete trace.
    End {
        /// Number of operations before it.
        operations: u64,
    },
    /// `#...`: a remark without effect.
    Comment,
}

impl<'a> Line<'a> {
    /// Parses a line, given without its line end.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        if line.first() == Some(&b'#') {
            return remark(line);
        }
        let mut parts = line.split(|&byte| byte == b' ');
        let verb = parts.next().unwrap_or_default();
        let rest: [Option<&[u8]>; 3] = [parts.next(), parts.next(), parts.next()];
        let usage = usage(verb).ok_or_else(|| match verb {
            b"" => "an operation is missing".to_owned(),
            _ => format!("unknown operation \"{}\"", shown(verb)),
        })?;
        let wrong = || format!("{usage} is expected");
        let line = match (verb, rest) {
            (b"I", [Some(of), Some(value), None]) => Self::Insert { key: key(of)?, value: payload(value)? },
            (b"U", [Some(of), Some(value), None]) => Self::Update { key: key(of)?, value: payload(value)? },
            // The K-V-Workload-Generator writes a space after the key.
            (b"D", [Some(of), None | Some(b""), None]) => Self::Delete { key: key(of)? },
            (b"R", [Some(from), Some(to), None]) => Self::DeleteThrough { from: key(from)?, to: key(to)? },
            (b"X", [Some(from), None, None]) => Self::DeleteUpTo { from: key(from)?, to: None },
            (b"X", [Some(from), Some(to), None]) => Self::DeleteUpTo { from: key(from)?, to: Some(key(to)?) },
            (b"Q", [Some(of), found, None]) => {
                let found = match found {
                    None => None,
                    Some(b"+") => Some(true),
                    Some(b"-") => Some(false),
                    Some(_) => return Err(wrong()),
                };
                Self::Get { key: key(of)?, found }
            }
            (b"S", [Some(from), Some(to), None]) => Self::Scan { from: key(from)?, to: key(to)? },
            (b"N", [Some(from), Some(entries), None]) => {
                Self::Next { from: key(from)?, entries: number(entries)? }
            }
            (b"P", [Some(from), Some(entries), None]) => {
                Self::Previous { from: key(from)?, entries: number(entries)? }
            }
            (b"K", [Some(of), None, None]) => Self::Keyspace { name: name(of)? },
            (b"G", [Some(of), None, None]) => Self::Gone { name: name(of)? },
            _ => return Err(wrong()),
        };
        Ok(line)
    }

    /// Appends the line, with its line end, to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        match self {
            Self::Insert { key, value } => put(out, b'I', key, value),
            Self::Update { key, value } => put(out, b'U', key, value),
            Self::Delete { key } => one_key(out, b'D', key),
            Self::DeleteThrough { from, to } => two_keys(out, b'R', from, to),
            Self::DeleteUpTo { from, to: None } => one_key(out, b'X', from),
            Self::DeleteUpTo { from, to: Some(to) } => two_keys(out, b'X', from, to),
            Self::Get { key, found } => {
                one_key(out, b'Q', key);
                match found {
                    None => {}
                    Some(true) => out.extend_from_slice(b" +"),
                    Some(false) => out.extend_from_slice(b" -"),
                }
            }
            Self::Scan { from, to } => two_keys(out, b'S', from, to),
            Self::Next { from, entries } => counted(out, b'N', from, *entries),
            Self::Previous { from, entries } => counted(out, b'P', from, *entries),
            Self::Keyspace { name } => one_key(out, b'K', name.as_bytes()),
            Self::Gone { name } => one_key(out, b'G', name.as_bytes()),
            Self::Header { version } => {
                out.extend_from_slice(HEADER_OF_ANY);
                push_number(out, *version);
            }
            Self::End { operations } => {
                out.extend_from_slice(END);
                push_number(out, *operations);
            }
            Self::Comment => out.push(b'#'),
        }
        debug_assert!(!out[begin..].contains(&b'\n'), "{self:?} takes several lines");
        debug_assert!(
            Line::parse(&out[begin..]).is_ok(),
            "{self:?} is written as a line that cannot be read"
        );
        out.push(b'\n');
    }

    /// Whether the line is an operation, not a remark or the name of a keyspace.
    pub fn is_operation(&self) -> bool {
        !matches!(self, Self::Keyspace { .. } | Self::Header { .. } | Self::End { .. } | Self::Comment)
    }
}

/// The syntax of an operation.
fn usage(verb: &[u8]) -> Option<&'static str> {
    Some(match verb {
        b"I" => "I KEY VALUE",
        b"U" => "U KEY VALUE",
        b"D" => "D KEY",
        b"R" => "R FROM TO",
        b"X" => "X FROM TO, or X FROM",
        b"Q" => "Q KEY, optionally followed by + or -",
        b"S" => "S FROM TO",
        b"N" => "N FROM COUNT",
        b"P" => "P FROM COUNT",
        b"K" => "K NAME",
        b"G" => "G NAME",
        _ => return None,
    })
}

fn remark(line: &[u8]) -> Result<Line<'_>, String> {
    if let Some(version) = line.strip_prefix(HEADER_OF_ANY) {
        return Ok(Line::Header { version: number(version)? });
    }
    Ok(match line.strip_prefix(END) {
        Some(operations) => Line::End { operations: number(operations)? },
        None => Line::Comment,
    })
}

fn key(text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let key = match text {
        b"" => return Err("a key is missing (an empty key is written \\e)".to_owned()),
        b"\\e" => Cow::Borrowed(&b""[..]),
        text => unescape(text)?,
    };
    match key.len() {
        0..=MAX_KEY_BYTES => Ok(key),
        bytes => Err(format!("the key has {bytes} bytes; the maximum is {MAX_KEY_BYTES}")),
    }
}

fn payload(text: &[u8]) -> Result<Payload<'_>, String> {
    let value = match text.strip_prefix(b"*") {
        Some(length) => Payload::Length(usize::try_from(number(length)?).unwrap_or(usize::MAX)),
        None => Payload::Bytes(unescape(text)?),
    };
    match value.len() {
        0..=MAX_VALUE_BYTES => Ok(value),
        bytes => Err(format!("the value has {bytes} bytes; the maximum is {MAX_VALUE_BYTES}")),
    }
}

fn name(text: &[u8]) -> Result<Cow<'_, str>, String> {
    let utf8 = |_| "the name of a keyspace must be UTF-8".to_owned();
    match key(text)? {
        Cow::Borrowed(name) => std::str::from_utf8(name).map(Cow::Borrowed).map_err(utf8),
        Cow::Owned(name) => String::from_utf8(name).map(Cow::Owned).map_err(|error| utf8(error.utf8_error())),
    }
}

/// Parses digits, without a sign.
fn number(text: &[u8]) -> Result<u64, String> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("\"{}\" is not a number below 2^64", shown(text)))
}

fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    let escaped = text[..text.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    if text.len() > SHOWN_BYTES { escaped + "..." } else { escaped }
}

fn put(out: &mut Vec<u8>, verb: u8, key: &[u8], value: &Payload<'_>) {
    one_key(out, verb, key);
    out.push(b' ');
    match value {
        Payload::Length(bytes) => {
            out.push(b'*');
            push_number(out, *bytes as u64);
        }
        Payload::Bytes(bytes) => match bytes.split_first() {
            Some((b'*', rest)) => {
                out.extend_from_slice(b"\\x2a");
                escape(out, rest);
            }
            _ => escape(out, bytes),
        },
    }
}

fn one_key(out: &mut Vec<u8>, verb: u8, key: &[u8]) {
    out.push(verb);
    push_key(out, key);
}

fn two_keys(out: &mut Vec<u8>, verb: u8, from: &[u8], to: &[u8]) {
    one_key(out, verb, from);
    push_key(out, to);
}

fn counted(out: &mut Vec<u8>, verb: u8, from: &[u8], entries: u64) {
    one_key(out, verb, from);
    out.push(b' ');
    push_number(out, entries);
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{number}");
}

fn push_key(out: &mut Vec<u8>, key: &[u8]) {
    out.push(b' ');
    if key.is_empty() {
        out.extend_from_slice(b"\\e");
    } else {
        escape(out, key);
    }
}

fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'\\' {
            out.push(byte);
        } else {
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            out.extend_from_slice(&[b'\\', b'x', high, low]);
        }
    }
}

/// Decodes the escapes of a text.
fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii_graphic()) {
        let byte = text[at];
        return Err(format!("the byte \\x{byte:02x} at byte {at} of \"{}\" must be escaped", shown(text)));
    }
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let escaped = match after {
            [b'x', high, low, after @ ..] => digit(*high).zip(digit(*low)).zip(Some(after)),
            _ => None,
        };
        let Some(((high, low), after)) = escaped else {
            let at = text.len() - rest.len();
            return Err(format!("\\ at byte {at} of \"{}\" does not start \\xNN", shown(text)));
        };
        bytes.push(high << 4 | low);
        rest = after;
    }
    Ok(Cow::Owned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line<'_>) -> String {
        let mut out = Vec::new();
        line.write(&mut out);
        String::from_utf8(out).expect("traces are ASCII")
    }

    fn cow(bytes: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytes)
    }

    #[test]
    fn every_line_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let keys: [&[u8]; 7] = [b"", b"k", b"a b", b"\\e", b"\\x00", b"#", &all];
        for key in keys {
            let key = || cow(key);
            let name = || Cow::Owned(String::from_utf8_lossy(&key()).into_owned());
            let bytes = |value: &'static [u8]| Payload::Bytes(Cow::Borrowed(value));
            for line in [
                Line::Insert { key: key(), value: Payload::Length(0) },
                Line::Insert { key: key(), value: bytes(b"*5") },
                Line::Update { key: key(), value: bytes(b"") },
                Line::Update { key: key(), value: Payload::Bytes(key()) },
                Line::Delete { key: key() },
                Line::DeleteThrough { from: key(), to: cow(b"z") },
                Line::DeleteUpTo { from: cow(b""), to: Some(key()) },
                Line::DeleteUpTo { from: key(), to: None },
                Line::Get { key: key(), found: None },
                Line::Get { key: key(), found: Some(true) },
                Line::Get { key: key(), found: Some(false) },
                Line::Scan { from: key(), to: key() },
                Line::Next { from: key(), entries: 0 },
                Line::Previous { from: key(), entries: u64::MAX },
                Line::Keyspace { name: name() },
                Line::Gone { name: name() },
                Line::Header { version: 1 },
                Line::End { operations: 7 },
                Line::Comment,
            ] {
                let text = text(&line);
                let inner = text.strip_suffix('\n').expect("a whole line");
                assert!(inner.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{inner:?}");
                assert_eq!(Line::parse(inner.as_bytes()).as_ref(), Ok(&line), "{inner}");
            }
        }
        assert_eq!(Line::parse(HEADER.as_bytes()), Ok(Line::Header { version: 1 }));
    }

    #[test]
    fn lines_of_the_generator_are_read_as_they_are() {
        let bytes = |value: &'static [u8]| Payload::Bytes(Cow::Borrowed(value));
        for (text, line) in [
            ("I 0aZ QqQ", Line::Insert { key: cow(b"0aZ"), value: bytes(b"QqQ") }),
            ("U 0aZ ", Line::Update { key: cow(b"0aZ"), value: bytes(b"") }),
            ("D 0aZ ", Line::Delete { key: cow(b"0aZ") }),
            ("Q ####", Line::Get { key: cow(b"####"), found: None }),
            ("S 00 zz", Line::Scan { from: cow(b"00"), to: cow(b"zz") }),
            ("R 00 zz", Line::DeleteThrough { from: cow(b"00"), to: cow(b"zz") }),
        ] {
            assert_eq!(Line::parse(text.as_bytes()), Ok(line), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("Q {}", "k".repeat(MAX_KEY_BYTES + 1));
        for (text, reason) in [
            ("", "an operation is missing"),
            (" Q k", "an operation is missing"),
            ("q k", "unknown operation \"q\""),
            ("Q", "Q KEY, optionally followed by + or - is expected"),
            ("Q ", "a key is missing (an empty key is written \\e)"),
            ("Q k ", "Q KEY, optionally followed by + or - is expected"),
            ("Q k * 1", "Q KEY, optionally followed by + or - is expected"),
            ("I k", "I KEY VALUE is expected"),
            ("I k v w", "I KEY VALUE is expected"),
            ("I k *-1", "\"-1\" is not a number below 2^64"),
            ("I k *99999999999", "the value has 99999999999 bytes; the maximum is 268435456"),
            ("D k v", "D KEY is expected"),
            ("R a", "R FROM TO is expected"),
            ("X", "X FROM TO, or X FROM is expected"),
            ("S a b c", "S FROM TO is expected"),
            ("N a +1", "\"+1\" is not a number below 2^64"),
            ("P a", "P FROM COUNT is expected"),
            ("K \\xff", "the name of a keyspace must be UTF-8"),
            ("Q a\\", "\\ at byte 1 of \"a\\\\\" does not start \\xNN"),
            ("Q \\x4", "\\ at byte 0 of \"\\\\x4\" does not start \\xNN"),
            ("Q k\r", "the byte \\x0d at byte 1 of \"k\\r\" must be escaped"),
            ("Q \u{e4}", "the byte \\xc3 at byte 0 of \"\\xc3\\xa4\" must be escaped"),
            ("# end soon", "\"soon\" is not a number below 2^64"),
            (long.as_str(), "the key has 65536 bytes; the maximum is 65535"),
        ] {
            let error = Line::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error, reason, "{text}");
        }
    }
}
