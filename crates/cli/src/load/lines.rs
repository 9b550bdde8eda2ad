//! Lines of bounded length, with their numbers.

use std::io::{self, BufRead, Read};

/// Maximum line length: a key and value of maximum length, with every byte escaped to four, and the
/// other words of a line of `batch`.
pub const LINE_BYTES_MAX: u64 = 4 * (65_535 + (256 << 20)) + (64 << 10);

/// A line, or the reason why it is rejected.
type Line<'a> = Result<&'a [u8], String>;

/// Reads lines. A line end is `\n` or `\r\n`; the last line may lack it, unless the writer of the
/// input ends all lines.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    longest: u64,
    are_ended: bool,
    is_cut: bool,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`.
    pub fn new(input: R) -> Self {
        let longest = LINE_BYTES_MAX;
        Self { input, line: Vec::new(), number: 0, longest, are_ended: false, is_cut: false }
    }

    /// Rejects a last line without an end: the input was cut, and so may be what the line says.
    pub fn all_ended(self) -> Self {
        Self { are_ended: true, ..self }
    }

    /// Whether the last line was rejected because it lacks its end.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The next line with its number, counted from 1.
    ///
    /// # Errors
    /// I/O errors of the input.
    pub fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.input).take(self.longest + 2).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        let is_whole = pop_line_end(&mut self.line);
        if self.line.len() as u64 > self.longest {
            self.line.clear();
            if !is_whole {
                self.skip_rest()?;
            }
            return Ok(Some((self.number, Err(format!("longer than {} bytes", self.longest)))));
        }
        self.is_cut = self.are_ended && !is_whole;
        let line = if self.is_cut {
            Err("the line has no end: the input was cut".to_owned())
        } else {
            Ok(&self.line[..])
        };
        Ok(Some((self.number, line)))
    }

    /// Skips to the next line end without buffering the bytes before it.
    fn skip_rest(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let (used, end) = match buffer.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), false),
            };
            self.input.consume(used);
            if end {
                return Ok(());
            }
        }
    }
}

/// Removes the line end, `\n` or `\r\n`; returns whether there is one.
fn pop_line_end(line: &mut Vec<u8>) -> bool {
    let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
    if is_whole {
        line.pop_if(|byte| *byte == b'\r');
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], longest: u64) -> Vec<(u64, Result<Vec<u8>, String>)> {
        let mut lines = Lines { longest, ..Lines::new(text) };
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().expect("memory does not fail") {
            all.push((number, line.map(<[u8]>::to_vec)));
        }
        all
    }

    #[test]
    fn line_ends_of_both_kinds_and_none() {
        let ok = |number, text: &str| (number, Ok(text.as_bytes().to_vec()));
        assert_eq!(read(b"a\nb\r\n\nc", 100), [ok(1, "a"), ok(2, "b"), ok(3, ""), ok(4, "c")]);
        assert_eq!(read(b"", 100), []);
        assert_eq!(read(b"\n", 100), [ok(1, "")]);
    }

    #[test]
    fn a_line_that_was_cut_is_rejected_where_all_have_ends() {
        let mut lines = Lines::new(&b"a\nb"[..]).all_ended();
        assert_eq!(lines.next().expect("read"), Some((1, Ok(&b"a"[..]))));
        assert!(!lines.is_cut());
        assert!(lines.next().expect("read").is_some_and(|(number, line)| number == 2 && line.is_err()));
        assert!(lines.is_cut());
        assert_eq!(lines.next().expect("read"), None);
    }

    #[test]
    fn a_line_too_long_is_skipped_whole() {
        for longer in ["123456", "1234567", "123456789012345678"] {
            let all = read(format!("12345\n{longer}\n12\n").as_bytes(), 5);
            assert_eq!(all[0].1.as_deref(), Ok(&b"12345"[..]));
            assert_eq!(all[1], (2, Err("longer than 5 bytes".into())));
            assert_eq!(all[2].1.as_deref(), Ok(&b"12"[..]));
            assert_eq!(all.len(), 3);
        }
    }
}
