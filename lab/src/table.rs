//! Tables of results, as CSV.

use std::fmt;

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A measure, written with six significant digits.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Nothing to say.
    None,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(u64::from(count))
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => f.write_str(&significant(*number)),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::None => Ok(()),
        }
    }
}

/// Six significant digits, as short as they can be.
fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number.is_finite() { "0".to_owned() } else { String::new() };
    }
    let rounded: f64 = format!("{number:.5e}").parse().unwrap_or(number);
    if (1e-5..1e12).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// Rows of named columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table. Units end a column's name.
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// With another number of cells than there are columns: the experiment's mistake.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "a row of the columns {:?}", self.columns);
        self.rows.push(cells);
    }

    /// The names of columns.
    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// How many rows say `flag` in the column of that name; none without such a column.
    pub fn flagged(&self, column: &str, flag: bool) -> usize {
        let Some(place) = self.columns.iter().position(|name| *name == column) else { return 0 };
        self.rows.iter().filter(|row| row.get(place) == Some(&Cell::Flag(flag))).count()
    }

    /// The table as CSV, each line of `head` before it as a comment.
    ///
    /// # Errors
    /// What the writer says.
    pub fn csv(&self, head: &[(String, String)]) -> Result<String, String> {
        let mut text: String =
            head.iter().map(|(name, value)| format!("# {name}: {}\n", value.replace('\n', " "))).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let rows = self.rows.iter().map(|row| row.iter().map(ToString::to_string).collect());
        let names = self.columns.iter().map(ToString::to_string).collect::<Vec<_>>();
        for record in std::iter::once(names).chain(rows) {
            writer.write_record(&record).map_err(|error| format!("CSV: {error}"))?;
        }
        let bytes = writer.into_inner().map_err(|error| format!("CSV: {error}"))?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        Ok(text)
    }
}

/// A row's cells out of values of different types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { [$($crate::Cell::from($value)),*] };
}
pub(crate) use row;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_csv_with_its_facts_before_it() {
        let mut table = Table::new(&["device", "gain_share", "levels"]);
        table.row(row!["a, b", 0.123_456_789, 5u64]);
        table.row(row!["c", f64::NAN, None::<u64>]);
        let csv = table.csv(&[("seed".to_owned(), "1".to_owned())]).expect("written");
        assert_eq!(csv, "# seed: 1\ndevice,gain_share,levels\n\"a, b\",0.123457,5\nc,,\n");
    }

    #[test]
    fn flags_are_counted_by_their_column() {
        let mut table = Table::new(&["comparable", "emulated"]);
        table.row(row![true, true]);
        table.row(row![false, true]);
        assert_eq!([table.flagged("comparable", false), table.flagged("emulated", true)], [1, 2]);
        assert_eq!([table.flagged("emulated", false), table.flagged("other", true)], [0, 0]);
    }

    #[test]
    fn numbers_keep_six_digits() {
        for (number, text) in
            [(0.0, "0"), (1.0, "1"), (1234567.0, "1234570"), (1.5e-9, "1.5e-9"), (2.0 / 3.0, "0.666667")]
        {
            assert_eq!(Cell::from(number).to_string(), text);
        }
    }
}
