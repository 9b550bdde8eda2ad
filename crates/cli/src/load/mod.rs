//! Records from files: four formats, one stream of records and complaints.
//!
//! | format | a record | key | value |
//! |---|---|---|---|
//! | `tsv` | a line, columns between tabs, `\xNN` escapes | column 1, or `--key N` | the other columns, tabs kept |
//! | `csv` | RFC 4180; the first record is a header, unless `--no-header` | column 1, or `--key` | the other columns; as CSV if several |
//! | `jsonl` | a JSON object on a line | field `key`, or `--key` | field `value` if it is the only other one and text, else the line |
//! | `lines` | a line, taken as it is | the line | empty |
//!
//! A malformed record is an [`Item::Malformed`] with its line and the reason, and reading goes on after
//! it; whether it ends the load is the command's decision. A `\r` before the line end is part of it.

mod csv;
mod jsonl;
mod lines;

use std::io::{self, BufRead};

use clap::ValueEnum;

use crate::text::Notation;

/// The longest key that a database takes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// How a file holds records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Columns between tabs
    Tsv,
    /// Comma-separated values with quotes
    Csv,
    /// A JSON object a line
    Jsonl,
    /// Every line is a key
    Lines,
}

impl Format {
    /// The format that a file's name suggests; `tsv` if none.
    pub fn of_name(name: &std::path::Path) -> Self {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Self::Csv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("txt") => Self::Lines,
            _ => Self::Tsv,
        }
    }

    /// As `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Lines => "lines",
        }
    }
}

/// What a file holds next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record.
    Record {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A header that has no such key column: no record can be read.
    BadHeader {
        /// Where, counted from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// Something that is no record.
    Malformed {
        /// Where, counted from 1.
        line: u64,
        /// Why.
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
    /// Records of `input`. `key` names the column or field of the key, if not the usual one; `hex` says
    /// that keys and values are hex; `no_header` that the first record of a csv file is data.
    ///
    /// # Errors
    /// In words, when the format knows no such key column, or `no_header` is for another format
    /// than csv.
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
                    Some(text) => column(text).ok_or("--key takes a column number from 1 on for tsv")?,
                };
                Source::Tsv {
                    lines: lines::Lines::new(input),
                    key_column,
                    notation: Notation::from_switch(hex),
                }
            }
            Format::Csv => {
                if no_header && key.is_some_and(|text| column(text).is_none()) {
                    return Err("--key takes a column number from 1 on with --no-header".into());
                }
                Source::Csv(csv::CsvRecords::new(input, key, hex, !no_header))
            }
            Format::Jsonl => {
                let key_field = key.unwrap_or("key").to_string();
                Source::Jsonl { lines: lines::Lines::new(input), key_field, hex }
            }
            Format::Lines if key.is_some() => return Err("--key means nothing for lines".into()),
            Format::Lines => Source::Lines { lines: lines::Lines::new(input), hex },
        };
        Ok(Self { source })
    }

    /// Whether no record can follow.
    fn is_over(&self) -> bool {
        matches!(&self.source, Source::Csv(records) if records.is_over())
    }

    /// Where the key of a record is, in words.
    pub fn key_place(&self) -> String {
        match &self.source {
            Source::Tsv { key_column, .. } => format!("column {key_column}"),
            Source::Csv(records) => records.key_column(),
            Source::Jsonl { key_field, .. } => format!("field {key_field:?}"),
            Source::Lines { .. } => "the line".into(),
        }
    }

    /// Whether a first record was taken for a header, and not loaded.
    pub fn has_read_header(&self) -> bool {
        matches!(&self.source, Source::Csv(records) if records.has_read_header())
    }

    /// The next record or complaint; `None` at the end.
    ///
    /// # Errors
    /// As reading fails.
    pub fn next(&mut self) -> io::Result<Option<Item>> {
        let (line, record) = match &mut self.source {
            Source::Csv(records) => match records.next()? {
                None => return Ok(None),
                Some(item) => item,
            },
            Source::Tsv { lines, key_column, notation } => match lines.next()? {
                None => return Ok(None),
                Some((line, text)) => (line, text.and_then(|text| tsv(text, *key_column, *notation))),
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
            Ok((key, value)) => Item::Record { key, value },
            Err(reason) if self.is_over() => Item::BadHeader { line, reason },
            Err(reason) => Item::Malformed { line, reason },
        }))
    }
}

/// A key and its value, or what is wrong.
type Parsed = Result<(Vec<u8>, Vec<u8>), String>;

/// A column number from 1 on.
fn column(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&number| number > 0)
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
    let key = key.ok_or_else(|| format!("column {key_column} asked for, but the line has {count}"))?;
    let key = notation.parse(key).map_err(|reason| format!("key: {reason}"))?;
    let value = rest.join(&b'\t');
    let value = notation.parse(&value).map_err(|reason| format!("value: {reason}"))?;
    Ok((key.into_owned(), value.into_owned()))
}

/// Bytes as they are, or from hex.
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
