//! Records from files: reads four formats as one stream of records and malformed items.
//!
//! | format | record | key | value |
//! |---|---|---|---|
//! | `tsv` | tab-separated columns, `\xNN` escapes | column 1, or `--key N` | other columns |
//! | `csv` | RFC 4180; a header unless `--no-header` | column 1, or `--key` | other columns |
//! | `jsonl` | JSON object per line | field `key`, or `--key` | field `value`, or the line |
//! | `lines` | line, unchanged | the line | empty |
//!
//! Several value columns stay separated: by tabs in `tsv`, as one CSV record in `csv`. The value of
//! a `jsonl` record is the field `value` if it is text and the only other field; otherwise it is
//! the whole line.
//!
//! A malformed record is an [`Item::Malformed`] with its line and the reason, and reading continues
//! after it; the command decides whether it ends the load. After an [`Item::Fatal`], such as a
//! quote that is not closed, nothing can be read. A `\r` before the line end is part of the line
//! end.

mod csv;
mod jsonl;
mod lines;

use std::io::{self, BufRead};

use clap::ValueEnum;

use crate::text::Notation;

pub use self::lines::Lines;

/// Maximum key length of a database.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Maximum value length.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Format of an input file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Columns between tabs
    Tsv,
    /// Comma-separated values with quotes
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Every line is a key
    Lines,
}

impl Format {
    /// The format suggested by a file's name; `tsv` by default.
    pub fn of_name(name: &std::path::Path) -> Self {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Self::Csv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("txt") => Self::Lines,
            _ => Self::Tsv,
        }
    }

    /// The name that `--format` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Lines => "lines",
        }
    }
}

/// The time for which a record lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// As the keyspace says.
    OfKeyspace,
    /// It does not expire.
    Lasting,
    /// It expires at this time, in milliseconds since 1970-01-01 UTC.
    Until(u64),
}

/// The next item of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record.
    Record {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// The time for which it lives.
        lifetime: Lifetime,
    },
    /// An item after which no record can be read: a header without the requested key column, or a
    /// record whose quote is not closed.
    Fatal {
        /// Line number, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// An item that is not a record.
    Malformed {
        /// Line number, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
}

/// A stream of records.
pub struct Records<'a> {
    source: Source<'a>,
}

enum Source<'a> {
    Tsv { lines: lines::Lines<Box<dyn BufRead + 'a>>, key_column: usize, notation: Notation },
    Csv(csv::CsvRecords<'a>),
    Jsonl { lines: lines::Lines<Box<dyn BufRead + 'a>>, key_field: String, hex: bool },
    Lines { lines: lines::Lines<Box<dyn BufRead + 'a>>, hex: bool },
}

impl<'a> Records<'a> {
    /// Reads records of `input`. `key` names the column or field of the key; `None` is the default
    /// one. With `hex`, keys and values are hex. With `no_header`, the first record of a csv file
    /// is data.
    ///
    /// # Errors
    /// A message, when the format has no such key column, or `no_header` is given for a format
    /// other than csv.
    pub fn new(
        format: Format,
        input: Box<dyn BufRead + 'a>,
        key: Option<&str>,
        hex: bool,
        no_header: bool,
    ) -> Result<Self, String> {
        if no_header && format != Format::Csv {
            return Err(format!("--no-header is for csv; a {} file has no header", format.name()));
        }
        let source = match format {
            Format::Tsv => {
                let key_column = match key {
                    None => 1,
                    Some(text) => column(text).ok_or("--key must be a column number (1 or more) for tsv")?,
                };
                let lines = lines::Lines::new(input);
                // `dump` ends all lines that it prints.
                let lines = if hex && key_column == 1 { lines.all_ended() } else { lines };
                Source::Tsv { lines, key_column, notation: Notation::from_switch(hex) }
            }
            Format::Csv => {
                if no_header && key.is_some_and(|text| column(text).is_none()) {
                    return Err("--key must be a column number (1 or more) with --no-header".into());
                }
                Source::Csv(csv::CsvRecords::new(input, key, hex, !no_header))
            }
            Format::Jsonl => {
                let key_field = key.unwrap_or("key").to_string();
                Source::Jsonl { lines: lines::Lines::new(input), key_field, hex }
            }
            Format::Lines if key.is_some() => return Err("--key does not apply to --format lines".into()),
            Format::Lines => Source::Lines { lines: lines::Lines::new(input), hex },
        };
        Ok(Self { source })
    }

    /// Whether no record can follow.
    fn is_over(&self) -> bool {
        match &self.source {
            Source::Csv(records) => records.is_over(),
            Source::Tsv { lines, .. } => lines.is_cut(),
            _ => false,
        }
    }

    /// The place of the key in a record, in words.
    pub fn key_place(&self) -> String {
        match &self.source {
            Source::Tsv { key_column, .. } => format!("column {key_column}"),
            Source::Csv(records) => records.key_column(),
            Source::Jsonl { key_field, .. } => format!("field {key_field:?}"),
            Source::Lines { .. } => "the line".into(),
        }
    }

    /// Whether the first record was read as a header, and not loaded.
    pub fn has_read_header(&self) -> bool {
        matches!(&self.source, Source::Csv(records) if records.has_read_header())
    }

    /// The next record or malformed item; `None` at the end.
    ///
    /// # Errors
    /// I/O errors of the input.
    pub fn next(&mut self) -> io::Result<Option<Item>> {
        let mut lifetime = Lifetime::OfKeyspace;
        let (line, record) = match &mut self.source {
            Source::Csv(records) => match records.next()? {
                None => return Ok(None),
                Some(item) => item,
            },
            Source::Tsv { lines, key_column, notation } => match lines.next()? {
                None => return Ok(None),
                Some((line, text)) => {
                    let is_dump = *notation == Notation::Hex && *key_column == 1;
                    let parse = |mut text| {
                        if is_dump {
                            (text, lifetime) = dumped(text)?;
                        }
                        tsv(text, *key_column, *notation)
                    };
                    (line, text.and_then(parse))
                }
            },
            Source::Jsonl { lines, key_field, hex } => match lines.next()? {
                None => return Ok(None),
                Some((line, text)) => (line, text.and_then(|text| jsonl::record(text, key_field, *hex))),
            },
            Source::Lines { lines, hex } => match lines.next()? {
                None => return Ok(None),
                Some((line, text)) => {
                    (line, text.and_then(|text| Ok((raw("line", text, *hex)?, Vec::new()))))
                }
            },
        };
        Ok(Some(match record.and_then(within_limits) {
            Ok((key, value)) => Item::Record { key, value, lifetime },
            Err(reason) if self.is_over() => Item::Fatal { line, reason },
            Err(reason) => Item::Malformed { line, reason },
        }))
    }
}

/// A key and its value, or the reason why the record is malformed.
type Parsed = Result<(Vec<u8>, Vec<u8>), String>;

/// Parses a column number; the first column is 1.
fn column(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&number| number > 0)
}

/// A line that `dump` has printed, without its third column, and what that says: the time at which
/// the value expires. Without one it lasts.
fn dumped(line: &[u8]) -> Result<(&[u8], Lifetime), String> {
    let mut tabs = line.iter().enumerate().filter(|(_, byte)| **byte == b'\t').map(|(at, _)| at);
    let (Some(_), Some(tab)) = (tabs.next(), tabs.next()) else { return Ok((line, Lifetime::Lasting)) };
    let (pair, expiry) = line.split_at(tab);
    let digits = expiry.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    let expiry_ms = digits.and_then(|digits| digits.parse().ok());
    let expiry_ms = expiry_ms.ok_or("the third column is not a time in milliseconds")?;
    Ok((pair, Lifetime::Until(expiry_ms)))
}

fn tsv(line: &[u8], key_column: usize, notation: Notation) -> Parsed {
    if line.is_empty() {
        return Err("empty line".into());
    }
    let mut key = None;
    let mut rest: Vec<&[u8]> = Vec::new();
    let mut count = 0;
    if key_column == 1 {
        // The usual case: everything after the first tab is the value.
        let tab = line.iter().position(|&byte| byte == b'\t').ok_or("no tab between key and value")?;
        key = Some(&line[..tab]);
        rest.push(&line[tab + 1..]);
    } else {
        for cell in line.split(|&byte| byte == b'\t') {
            count += 1;
            if count == key_column { key = Some(cell) } else { rest.push(cell) }
        }
    }
    let key =
        key.ok_or_else(|| format!("column {key_column} requested, but the line has {count} columns"))?;
    let key = notation.parse(key).map_err(|reason| format!("key: {reason}"))?;
    let value = rest.join(&b'\t');
    let value = notation.parse(&value).map_err(|reason| format!("value: {reason}"))?;
    Ok((key.into_owned(), value.into_owned()))
}

/// Bytes as given, or decoded from hex.
fn raw(what: &str, text: &[u8], hex: bool) -> Result<Vec<u8>, String> {
    if !hex {
        return Ok(text.to_vec());
    }
    match Notation::Hex.parse(text) {
        Ok(bytes) => Ok(bytes.into_owned()),
        Err(reason) => Err(format!("{what}: {reason}")),
    }
}

fn within_limits((key, value): (Vec<u8>, Vec<u8>)) -> Parsed {
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("the key has {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len()));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(format!("the value has {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len()));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests;
