//! CSV records.

use std::io::{self, BufRead};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, WriterBuilder};

use super::{Parsed, column, raw};

/// Reads CSV records; all must have as many fields as the first.
pub struct CsvRecords<'a> {
    reader: Reader<Box<dyn BufRead + 'a>>,
    record: ByteRecord,
    key: Key,
    hex: bool,
    /// Records are over: the column that was asked for does not exist.
    done: bool,
}

enum Key {
    Column(usize),
    /// To be found in the first record.
    Name(String),
}

impl<'a> CsvRecords<'a> {
    pub fn new(input: Box<dyn BufRead + 'a>, key: Option<&str>, hex: bool) -> Self {
        let key = match key {
            None => Key::Column(0),
            Some(text) => {
                column(text).map_or_else(|| Key::Name(text.into()), |number| Key::Column(number - 1))
            }
        };
        let reader = ReaderBuilder::new().has_headers(false).from_reader(input);
        Self { reader, record: ByteRecord::new(), key, hex, done: false }
    }

    /// The next record with its line, or what is wrong with it.
    ///
    /// # Errors
    /// As reading fails.
    pub fn next(&mut self) -> io::Result<Option<(u64, Parsed)>> {
        if self.done {
            return Ok(None);
        }
        if let Key::Name(name) = &self.key {
            let name = name.clone();
            return match self.read()? {
                None => Ok(None),
                Some((line, Err(reason))) => Ok(Some((line, Err(reason)))),
                Some((line, Ok(()))) => match self.record.iter().position(|cell| cell == name.as_bytes()) {
                    Some(index) => {
                        self.key = Key::Column(index);
                        self.next()
                    }
                    None => {
                        self.done = true;
                        Ok(Some((line, Err(format!("the first record names no column {name:?}")))))
                    }
                },
            };
        }
        Ok(self.read()?.map(|(line, result)| (line, result.and_then(|()| self.parse()))))
    }

    fn read(&mut self) -> io::Result<Option<(u64, Result<(), String>)>> {
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some((self.record.position().map_or(0, csv::Position::line), Ok(())))),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                match error.into_kind() {
                    ErrorKind::Io(error) => Err(error),
                    ErrorKind::UnequalLengths { expected_len, len, .. } => Ok(Some((
                        line,
                        Err(format!("{len} fields where the first record has {expected_len}")),
                    ))),
                    kind => Ok(Some((line, Err(format!("no CSV: {kind:?}"))))),
                }
            }
        }
    }

    fn parse(&self) -> Parsed {
        let Key::Column(column) = self.key else { return Err("no key column".into()) };
        let key = self.record.get(column).ok_or_else(|| {
            format!("column {} asked for, but the record has {}", column + 1, self.record.len())
        })?;
        let others: Vec<&[u8]> = self
            .record
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != column)
            .map(|(_, cell)| cell)
            .collect();
        let value = match others.as_slice() {
            [] => Vec::new(),
            [one] => raw("value", one, self.hex)?,
            many if self.hex => raw("value", &many.concat(), true)?,
            many => encode(many)?,
        };
        Ok((raw("key", key, self.hex)?, value))
    }
}

/// Several fields as one CSV record without its line end.
fn encode(cells: &[&[u8]]) -> Result<Vec<u8>, String> {
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(cells).map_err(|error| error.to_string())?;
    let mut bytes = writer.into_inner().map_err(|error| error.to_string())?;
    bytes.pop();
    Ok(bytes)
}
