//! Standard output: one locked, buffered writer, whose failures are values and never panics. Tests
//! replace it with another writer.
//!
//! `print!` panics when the reader of a pipe has closed it; here that is [`Failure::PipeClosed`],
//! and the command ends without a message, but for `batch`, whose replies are counted. Also here:
//! JSON lines, aligned tables, headings, and notes on standard error.

use std::io::{self, BufWriter, IsTerminal, Write};

use serde_json::Value;

use crate::exit::Failure;

/// Standard output, locked.
pub struct Out {
    writer: BufWriter<Box<dyn Write>>,
    styled: bool,
}

impl Out {
    /// Locks standard output.
    pub fn new() -> Self {
        let styled = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { writer: BufWriter::with_capacity(64 << 10, Box::new(io::stdout().lock())), styled }
    }

    /// An output that writes to `writer`.
    pub fn to(writer: Box<dyn Write>) -> Self {
        Self { writer: BufWriter::new(writer), styled: false }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Writes bytes unchanged. Long ones bypass the buffer, directly from the engine's memory.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.writer.write_all(bytes)?)
    }

    /// Writes text that contains its own line ends; adds the last one if it is missing.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn text(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        let text = text.as_ref();
        if text.is_empty() { Ok(()) } else { self.line(text.strip_suffix('\n').unwrap_or(text)) }
    }

    /// Writes a JSON object as one line.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(value.to_string())
    }

    /// Writes an empty line and a heading, bold on a terminal.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let heading = if self.styled { format!("\n\x1b[1m{text}\x1b[0m") } else { format!("\n{text}") };
        self.line(heading)
    }

    /// Flushes the buffer to standard output.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// Writes a line to standard error. A failure is ignored.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Writes a warning to standard error.
pub fn warn(text: impl AsRef<str>) {
    note(format!("warning: {}", text.as_ref()));
}

/// Aligned columns: the first to the left, the others to the right unless set otherwise.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
    indent: usize,
}

impl Table {
    /// A table with these column headings.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self { left: vec![0], ..Self::default() };
        table.row(headings);
        table
    }

    /// A table without headings.
    pub fn plain() -> Self {
        Self { left: vec![0], ..Self::default() }
    }

    /// Aligns these columns to the left as well.
    #[must_use]
    pub fn left(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.left.extend(columns);
        self
    }

    /// Indents the whole table.
    #[must_use]
    pub fn indent(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let pad = " ".repeat(width - cell.chars().count());
                if self.left.contains(&column) {
                    line.push_str(cell);
                    line.push_str(&pad);
                } else {
                    line.push_str(&pad);
                    line.push_str(cell);
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up_by_characters() {
        let mut table = Table::new(["name", "bytes", "note"]).left([2]).indent(2);
        table.row(["käse", "7", "a"]);
        table.row(["x", "12,345", "longer"]);
        assert_eq!(table.to_string(), "  name   bytes  note\n  käse       7  a\n  x     12,345  longer\n");
        let mut ragged = Table::plain();
        ragged.row(["a"]);
        ragged.row(["b", "1", "2"]);
        assert_eq!(ragged.to_string(), "a\nb  1  2\n");
    }
}
