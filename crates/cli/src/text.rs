//! Text notation of keys and values: `\xNN` for every byte that does not print, or hex for all
//! bytes (`--hex`).
//!
//! Escaping is exact both ways: printed text can be given back on the command line. Printable valid
//! UTF-8 stays unchanged; control characters, invalid bytes and the backslash become `\xNN`. On
//! input a backslash that does not start `\x` is an ordinary byte.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Notation of keys and values on the command line and in output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Text with `\xNN` escapes.
    Text,
    /// Lower-case hex, two digits a byte (either case on input).
    Hex,
}

impl Notation {
    /// The notation selected by a `--hex` switch.
    pub fn from_switch(hex: bool) -> Self {
        if hex { Self::Hex } else { Self::Text }
    }

    /// Parses `text` to bytes.
    ///
    /// # Errors
    /// The problem and the byte at which it is.
    pub fn parse<'a>(self, text: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        match self {
            Self::Text => unescape(text),
            Self::Hex => unhex(text).map(Cow::Owned),
        }
    }

    /// Formats `bytes`.
    pub fn show(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Self::Text => escape(bytes),
            Self::Hex => Cow::Owned(hex(bytes)),
        }
    }
}

/// Text with `\xNN` escapes.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(prints)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if prints(character) {
                out.push(character);
            } else {
                let mut buffer = [0; 4];
                push_escaped(&mut out, character.encode_utf8(&mut buffer).as_bytes());
            }
        }
        push_escaped(&mut out, chunk.invalid());
    }
    Cow::Owned(out)
}

fn prints(character: char) -> bool {
    // Line and paragraph separators and directional marks disturb a terminal like control
    // characters.
    !character.is_control()
        && character != '\\'
        && !matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
}

fn push_escaped(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'\\' && after.first() == Some(&b'x') {
            let value = match (after.get(1).and_then(digit), after.get(2).and_then(digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => {
                    let at = text.len() - rest.len();
                    return Err(format!("\\x at byte {at} is not followed by two hex digits"));
                }
            };
            out.push(value);
            rest = &after[3..];
        } else {
            out.push(byte);
            rest = after;
        }
    }
    Ok(Cow::Owned(out))
}

fn digit(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let (pairs, odd) = text.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(format!("hex needs two digits a byte; {} digits were given", text.len()));
    }
    pairs
        .iter()
        .enumerate()
        .map(|(index, [high, low])| match (digit(high), digit(low)) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(format!("not a hex digit at byte {}", 2 * index)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_comes_back() {
        let mut rng = Rng(1);
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|_| rng.byte()).collect();
            for notation in [Notation::Text, Notation::Hex] {
                let shown = notation.show(&bytes);
                assert!(!shown.contains(['\n', '\t', '\r', '\0']), "{shown}");
                assert_eq!(notation.parse(shown.as_bytes()).as_deref(), Ok(bytes.as_slice()), "{shown}");
            }
        }
    }

    /// A small random generator, so that the test needs no dependency.
    struct Rng(u64);

    impl Rng {
        fn byte(&mut self) -> u8 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the bytes are those that are escaped, or are next to such bytes.
            let byte = (self.0 >> 40) as u8;
            if self.0 >> 63 == 0 { byte } else { b"\\x0aZ\xc3\xa9\n"[usize::from(byte) % 8] }
        }
    }

    #[test]
    fn what_prints_stays_and_what_does_not_is_escaped() {
        for (bytes, shown) in [
            (&b"plain text"[..], "plain text"),
            (b"", ""),
            ("käse 東".as_bytes(), "käse 東"),
            (b"a\tb\n", "a\\x09b\\x0a"),
            (b"a\\b", "a\\x5cb"),
            (b"\xff\xc3(", "\\xff\\xc3("),
            (b"\x1b[31m", "\\x1b[31m"),
            ("\u{202e}".as_bytes(), "\\xe2\\x80\\xae"),
        ] {
            assert_eq!(escape(bytes), shown);
        }
    }

    #[test]
    fn input_takes_either_case_and_lone_backslashes() {
        for (text, bytes) in
            [("\\x4A\\x4a", &b"JJ"[..]), ("C:\\dir", b"C:\\dir"), ("\\", b"\\"), ("\\\\x41", b"\\A")]
        {
            assert_eq!(Notation::Text.parse(text.as_bytes()).as_deref(), Ok(bytes), "{text}");
        }
        assert_eq!(Notation::Hex.parse(b"00fFA0").as_deref(), Ok(&[0, 255, 160][..]));
    }

    #[test]
    fn bad_input_says_where() {
        for (notation, text, message) in [
            (Notation::Text, "ab\\x4", "\\x at byte 2 is not followed by two hex digits"),
            (Notation::Text, "\\xg0", "\\x at byte 0 is not followed by two hex digits"),
            (Notation::Text, "\\x", "\\x at byte 0 is not followed by two hex digits"),
            (Notation::Hex, "abc", "hex needs two digits a byte; 3 digits were given"),
            (Notation::Hex, "00+1", "not a hex digit at byte 2"),
        ] {
            assert_eq!(notation.parse(text.as_bytes()), Err(message.to_string()), "{text}");
        }
    }
}
