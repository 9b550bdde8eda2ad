//! Reader of CSV records.

use std::io::{self, BufRead, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, WriterBuilder};

use super::lines::LINE_BYTES_MAX;
use super::{Parsed, column, raw};

/// An additional last record. If a quote is open at the end of the input, this record appears as a
/// part of a field.
const END: &[u8] = b"\0end of the input\0";
/// [`END`] on a separate line.
const END_LINE: &[u8] = b"\n\0end of the input\0\n";

/// The input and [`END_LINE`], of which a record can read a limited number of bytes.
type Input<'a> = Bounded<io::Chain<Box<dyn BufRead + 'a>, &'static [u8]>>;

/// A reader of at most `left` bytes; then it fails.
struct Bounded<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            let reason = format!("a record is longer than {LINE_BYTES_MAX} bytes; is a quote not closed?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let read = self.input.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads CSV records; all must have as many fields as the first record.
pub struct CsvRecords<'a> {
    reader: Reader<Input<'a>>,
    record: ByteRecord,
    /// Number of fields of the first record.
    fields: Option<usize>,
    key: Key,
    header: Header,
    hex: bool,
    /// No record can follow: the requested key column does not exist, or a quote was not closed.
    done: bool,
}

enum Key {
    /// Counted from 0.
    Column(usize),
    /// To be looked up in the header.
    Name(String),
}

/// State of the header: whether the first record names the columns.
#[derive(PartialEq, Eq)]
enum Header {
    /// No header: the first record is loaded like the others.
    Absent,
    /// The next record is the header.
    Expected,
    /// The header was read; the name of the key column.
    Read(String),
}

/// Maximum number of column names listed in a message; it counts the others.
const LISTED_MAX: usize = 20;

impl<'a> CsvRecords<'a> {
    /// Reads records of `input`. `key` is the name or the number of the key column; `has_header`
    /// says that the first record names the columns and is not loaded.
    pub fn new(input: Box<dyn BufRead + 'a>, key: Option<&str>, hex: bool, has_header: bool) -> Self {
        let key = match key {
            None => Key::Column(0),
            Some(text) => {
                column(text).map_or_else(|| Key::Name(text.into()), |number| Key::Column(number - 1))
            }
        };
        let input = Bounded { input: input.chain(END_LINE), left: LINE_BYTES_MAX };
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
        let header = if has_header { Header::Expected } else { Header::Absent };
        Self { reader, record: ByteRecord::new(), fields: None, key, header, hex, done: false }
    }

    /// The key column, in words, as far as it is known.
    pub fn key_column(&self) -> String {
        match (&self.key, &self.header) {
            (Key::Name(name), _) => format!("column {name:?}"),
            (Key::Column(index), Header::Read(name)) => format!("column {} {name:?}", index + 1),
            (Key::Column(index), _) => format!("column {}", index + 1),
        }
    }

    /// Whether no record can follow, because the header lacks the key column, or because a quote
    /// was not closed: then the rest of the input was one record.
    pub fn is_over(&self) -> bool {
        self.done
    }

    /// Whether the first record was read as the header.
    pub fn has_read_header(&self) -> bool {
        matches!(self.header, Header::Read(_))
    }

    /// The next record with its line number, or the reason why it is malformed.
    ///
    /// # Errors
    /// I/O errors of the input.
    pub fn next(&mut self) -> io::Result<Option<(u64, Parsed)>> {
        if self.done {
            return Ok(None);
        }
        if self.header == Header::Expected {
            return match self.read()? {
                None => Ok(None),
                Some((line, Err(reason))) => Ok(Some((line, Err(reason)))),
                Some((line, Ok(()))) => match self.take_header() {
                    Ok(()) => self.next(),
                    Err(reason) => {
                        self.done = true;
                        Ok(Some((line, Err(reason))))
                    }
                },
            };
        }
        Ok(self.read()?.map(|(line, result)| (line, result.and_then(|()| self.parse()))))
    }

    /// Finds the key column in the header, which is the record just read.
    fn take_header(&mut self) -> Result<(), String> {
        let text = |cell: &[u8]| String::from_utf8_lossy(cell).into_owned();
        let index = match &self.key {
            Key::Column(index) => *index,
            Key::Name(name) => {
                self.record.iter().position(|cell| cell == name.as_bytes()).ok_or_else(|| {
                    let mut names: Vec<String> =
                        self.record.iter().take(LISTED_MAX).map(|cell| format!("{:?}", text(cell))).collect();
                    if self.record.len() > LISTED_MAX {
                        names.push(format!("and {} more", self.record.len() - LISTED_MAX));
                    }
                    format!(
                        "the header has no column {name:?}; it has {}; use one of these with --key",
                        names.join(", ")
                    )
                })?
            }
        };
        let name = self.record.get(index).map(text).ok_or_else(|| {
            format!("column {} requested, but the header has {} columns", index + 1, self.record.len())
        })?;
        self.key = Key::Column(index);
        self.header = Header::Read(name);
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<(u64, Result<(), String>)>> {
        self.reader.get_mut().left = LINE_BYTES_MAX;
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
                    ErrorKind::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                        // The rest of the record would be taken for others.
                        self.done = true;
                        Ok(Some((line, Err(error.to_string()))))
                    }
                    ErrorKind::Io(error) => Err(error),
                    kind => Ok(Some((line, Err(format!("invalid CSV: {kind:?}"))))),
                }
            }
        }
    }

    /// Checks that the record is complete and has as many fields as the first.
    fn shape(&mut self) -> Result<(), String> {
        let last = self.record.iter().next_back().unwrap_or_default();
        if last.strip_suffix(b"\n").unwrap_or(last).ends_with(END) {
            self.done = true;
            return Err("a quote is not closed up to the end of the input".into());
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
            format!("column {} requested, but the record has {} columns", column + 1, self.record.len())
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

/// Encodes several fields as one CSV record without its line end.
fn encode(cells: &[&[u8]]) -> Result<Vec<u8>, String> {
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(cells).map_err(|error| error.to_string())?;
    let mut bytes = writer.into_inner().map_err(|error| error.to_string())?;
    bytes.pop();
    Ok(bytes)
}
