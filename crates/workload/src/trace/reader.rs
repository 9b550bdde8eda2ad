//! Reader of a trace: strict, one line at a time; errors give the line.
//!
//! Not here: the syntax of lines ([`shamba::trace::Line`]).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use shamba::trace::Line;

use crate::error::TraceError;

/// Supported version of the format.
const VERSION: u64 = 1;
/// Maximum line length: an operation with its value in full is at most four times as long as the
/// longest value.
const LINE_BYTES_MAX: u64 = (1 << 30) + (1 << 20);

/// Reader of a trace.
pub struct TraceReader {
    path: PathBuf,
    file: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    /// Lines read so far.
    lines: u64,
    /// Bytes read so far.
    bytes: u64,
    /// Operations read so far.
    operations: u64,
    /// Whether it began as recorded traces do, which must end with an end line.
    is_recorded: bool,
    ended: bool,
}

impl TraceReader {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::Io(path.to_path_buf(), error))?;
        Ok(Self::of(path, Box::new(BufReader::with_capacity(1 << 20, file))))
    }

    /// Reads the trace from `file`; errors name `path`.
    pub fn of(path: &Path, file: Box<dyn BufRead + Send>) -> Self {
        let path = path.to_path_buf();
        Self {
            path,
            file,
            line: Vec::new(),
            lines: 0,
            bytes: 0,
            operations: 0,
            is_recorded: false,
            ended: false,
        }
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// The next line that is not a remark; `None` at the end.
    ///
    /// # Errors
    /// Errors of reading, a malformed line, or a recording without its end line.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        loop {
            if !self.read()? {
                return self.at_the_end();
            }
            if self.line.first() != Some(&b'#') {
                break;
            }
            self.remark()?;
        }
        if self.ended {
            return Err(self.wrong("data after the end of the trace"));
        }
        match Line::parse(&self.line) {
            Ok(line) => {
                self.operations += u64::from(line.is_operation());
                Ok(Some(line))
            }
            Err(reason) => Err(self.wrong(reason)),
        }
    }

    fn at_the_end(&self) -> Result<Option<Line<'_>>, TraceError> {
        if self.is_recorded && !self.ended {
            let operations = self.operations;
            return Err(self.wrong(format!(
                "the recording is incomplete: its last line must be \"# end {operations}\""
            )));
        }
        Ok(None)
    }

    /// An error for the current line.
    pub fn wrong(&self, reason: impl Into<String>) -> TraceError {
        TraceError::Line { path: self.path.clone(), line: self.lines, reason: reason.into() }
    }

    fn remark(&mut self) -> Result<(), TraceError> {
        let line = match Line::parse(&self.line) {
            Ok(line) => line,
            Err(reason) => return Err(self.wrong(reason)),
        };
        match line {
            Line::Header { version } if version != VERSION => {
                Err(self.wrong(format!("a trace of version {version}; this build reads version {VERSION}")))
            }
            Line::Header { .. } if self.lines > 1 => Err(self.wrong("another trace begins here")),
            Line::Header { .. } => {
                self.is_recorded = true;
                Ok(())
            }
            Line::End { operations } if operations != self.operations => Err(self.wrong(format!(
                "{operations} operations expected before this line, found {}",
                self.operations
            ))),
            Line::End { .. } => {
                self.ended = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the next line without its line end; false at the end of the file.
    fn read(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let mut rest = (&mut self.file).take(LINE_BYTES_MAX);
        let bytes = rest
            .read_until(b'\n', &mut self.line)
            .map_err(|error| TraceError::Io(self.path.clone(), error))?;
        if bytes == 0 {
            return Ok(false);
        }
        self.lines += 1;
        self.bytes += bytes as u64;
        match self.line.pop() {
            Some(b'\n') => Ok(true),
            _ if bytes as u64 == LINE_BYTES_MAX => {
                Err(self.wrong(format!("more than {LINE_BYTES_MAX} bytes")))
            }
            _ => Err(self.wrong("the line is incomplete: it has no line end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(text: &'static str) -> TraceReader {
        TraceReader::of(Path::new("t"), Box::new(text.as_bytes()))
    }

    fn lines(text: &'static str) -> Result<u64, String> {
        let mut reader = reader(text);
        let mut lines = 0;
        while reader.next_line().map_err(|error| error.to_string())?.is_some() {
            lines += 1;
        }
        Ok(lines)
    }

    #[test]
    fn remarks_are_passed_over_and_counts_hold() {
        assert_eq!(lines(""), Ok(0));
        assert_eq!(lines("# shamba trace 1\nI k *5\nK other\n# nothing\nQ k -\n# end 2\n"), Ok(3));
        assert_eq!(lines("Q k\n"), Ok(1));
        assert_eq!(lines("# shamba trace 1\n# end 0\n# remark\n"), Ok(0));
        let mut reader = reader("Q k\n# end 1\n# remark\n");
        while reader.next_line().expect("fine").is_some() {}
        assert_eq!(reader.bytes_read(), 21);
    }

    #[test]
    fn what_is_wrong_names_the_file_and_the_line() {
        for (text, error) in [
            ("Q k\nQ\n", "t, line 2: Q KEY, optionally followed by + or - is expected"),
            ("Q k\n\nQ k\n", "t, line 2: an operation is missing"),
            ("Q k\r\n", "t, line 1: the byte \\x0d at byte 1 of \"k\\r\" must be escaped"),
            ("Q k\nQ ke", "t, line 2: the line is incomplete: it has no line end"),
            ("# shamba trace 2\n", "t, line 1: a trace of version 2; this build reads version 1"),
            ("Q k\n# shamba trace 1\n", "t, line 2: another trace begins here"),
            ("Q k\n# end 2\n", "t, line 2: 2 operations expected before this line, found 1"),
            ("# end 0\nQ k\n", "t, line 2: data after the end of the trace"),
            (
                "# shamba trace 1\nQ k\nK users\nQ k\n",
                "t, line 4: the recording is incomplete: its last line must be \"# end 2\"",
            ),
        ] {
            assert_eq!(lines(text), Err(error.to_owned()), "{text:?}");
        }
        let error = TraceReader::open(Path::new("/no/such/trace")).err().expect("not there");
        assert!(error.to_string().starts_with("/no/such/trace: "), "{error}");
    }
}
