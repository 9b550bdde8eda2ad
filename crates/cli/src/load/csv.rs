//! CSV records.

use std::io::{self, BufRead, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, WriterBuilder};

use super::{Parsed, column, raw};

/// The last record, of our own: if a quote is open at the end of the input, it shows as a part of a field.
const END: &[u8] = b"\0end of the input\0";
/// [`END`] on a line of its own.
const END_LINE: &[u8] = b"\n\0end of the input\0\n";

/// The input and [`END_LINE`].
type Input<'a> = io::Chain<Box<dyn BufRead + 'a>, &'static [u8]>;

/// Reads CSV records; all must have as many fields as the first.
pub struct CsvRecords<'a> {
    reader: Reader<Input<'a>>,
    record: ByteRecord,
    /// Of the first record.
    fields: Option<usize>,
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
        let reader =
            ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input.chain(END_LINE));
        Self { reader, record: ByteRecord::new(), fields: None, key, hex, done: false }
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
            Ok(true) if self.record.len() == 1 && &self.record[0] == END => Ok(None),
            Ok(true) => {
                let line = self.record.position().map_or(0, csv::Position::line);
                Ok(Some((line, self.shape())))
            }
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                match error.into_kind() {
                    ErrorKind::Io(error) => Err(error),
                    kind => Ok(Some((line, Err(format!("no CSV: {kind:?}"))))),
                }
            }
        }
    }

    /// Whether the record is whole and has as many fields as the first.
    fn shape(&mut self) -> Result<(), String> {
        let last = self.record.iter().next_back().unwrap_or_default();
        if last.strip_suffix(b"\n").unwrap_or(last).ends_with(END) {
            return Err("a quote is not closed before the end of the input".into());
        }
        let (fields, first) = (self.record.len(), *self.fields.get_or_insert(self.record.len()));
        if fields != first {
            return Err(format!("{fields} fields where the first record has {first}"));
        }
        Ok(())
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
