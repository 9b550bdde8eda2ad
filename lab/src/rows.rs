//! Rows of measurements: named cells, and how predicates and pictures select from them.
//!
//! An experiment returns [`Rows`] for one seed. Each [`Row`] is a point on one side: columns with
//! its coordinates (device, bits per key) and columns with its values. The runner adds the column
//! `seed` and joins the rows of all seeds. [`View`] selects rows by the cells of a column.
//!
//! Columns with a fixed meaning: `comparable` (false: the tree is not the one of the claim) and
//! `emulated` (a device with an emulated latency).

use std::fmt;

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A measure or a count.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// No value.
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

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Cell {
            fn from(number: $kind) -> Self {
                Self::Number(number as f64)
            }
        }
    )*};
}
numbers!(f64, u64, u32, usize);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => f.write_str(&significant(*number)),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::None => Ok(()),
        }
    }
}

/// Six significant digits without trailing zeros; nothing for a value that is not finite.
pub(crate) fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number.is_finite() { "0".to_owned() } else { String::new() };
    }
    let rounded: f64 = format!("{number:.5e}").parse().unwrap_or(number);
    if (1e-5..1e12).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// Named cells of one point.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Row(pub Vec<(&'static str, Cell)>);

impl Row {
    /// The cell of a column.
    pub fn get(&self, column: &str) -> Option<&Cell> {
        self.0.iter().find(|(name, _)| *name == column).map(|(_, cell)| cell)
    }

    /// The number in a column; `None` where there is none or it is not finite.
    pub fn number(&self, column: &str) -> Option<f64> {
        match self.get(column) {
            Some(Cell::Number(number)) if number.is_finite() => Some(*number),
            _ => None,
        }
    }

    /// The text of a cell as files have it; empty where the row has no such column.
    pub fn text(&self, column: &str) -> String {
        self.get(column).map(Cell::to_string).unwrap_or_default()
    }

    /// The row followed by the cells of another.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// A [`Row`] of `name: value` pairs. Units end a column's name.
macro_rules! row {
    ($($name:ident: $value:expr),* $(,)?) => {
        $crate::rows::Row(vec![$((stringify!($name), $crate::rows::Cell::from($value))),*])
    };
}
pub(crate) use row;

/// Everything that an experiment measured.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Rows {
    rows: Vec<Row>,
    /// Sentences on quantities that could not be measured here, with the reason.
    pub notes: Vec<String>,
}

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a sentence on a quantity that could not be measured, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Adds all rows and notes of another seed, with the seed as their first column.
    pub(crate) fn join(&mut self, seed: u64, other: Self) {
        self.rows.extend(other.rows.into_iter().map(|row| row!(seed: seed).and(row)));
        other.notes.into_iter().for_each(|note| self.note(note));
    }

    /// All rows, to select from.
    pub fn view(&self) -> View<'_> {
        View(self.rows.iter().collect())
    }

    /// Names of all columns, in the order in which they first appear.
    pub fn columns(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        for (name, _) in self.rows.iter().flat_map(|row| &row.0) {
            if !columns.contains(name) {
                columns.push(*name);
            }
        }
        columns
    }
}

impl Extend<Row> for Rows {
    fn extend<I: IntoIterator<Item = Row>>(&mut self, rows: I) {
        self.rows.extend(rows);
    }
}

/// Some of the rows.
#[derive(Clone, Debug, Default)]
pub struct View<'a>(pub Vec<&'a Row>);

impl<'a> View<'a> {
    /// Rows whose cell in `column` equals `value`.
    #[must_use]
    pub fn of(&self, column: &str, value: impl Into<Cell>) -> Self {
        let wanted = value.into().to_string();
        Self(self.0.iter().copied().filter(|row| row.text(column) == wanted).collect())
    }

    /// Rows for which `is_wanted`.
    #[must_use]
    pub fn filter(&self, is_wanted: impl Fn(&Row) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|row| is_wanted(row)).collect())
    }

    /// The number in a column of the first row.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.0.first().and_then(|row| row.number(column))
    }

    /// All numbers of a column, in order.
    pub fn numbers(&self, column: &str) -> Vec<f64> {
        self.0.iter().filter_map(|row| row.number(column)).collect()
    }

    /// The mean of a column; `None` of no numbers.
    pub fn mean(&self, column: &str) -> Option<f64> {
        let numbers = self.numbers(column);
        (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
    }

    /// Two columns as points, ascending by `x`.
    pub fn points(&self, x: &str, y: &str) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> =
            self.0.iter().filter_map(|row| Some((row.number(x)?, row.number(y)?))).collect();
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
        points
    }

    /// The distinct texts of a column, in the order in which they first appear.
    pub fn values(&self, column: &str) -> Vec<String> {
        let mut values = Vec::new();
        for text in self.0.iter().map(|row| row.text(column)) {
            if !values.contains(&text) {
                values.push(text);
            }
        }
        values
    }

    /// Rows whose flag in `column` is `value`.
    pub(crate) fn flagged(&self, column: &str, value: bool) -> usize {
        self.0.iter().filter(|row| row.get(column) == Some(&Cell::Flag(value))).count()
    }
}

/// The slope of the least-squares line through points; `None` of fewer than two places.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (points.len() > 1 && spread > 0.0).then(|| together / spread)
}

/// The last point's `y` over the first one's.
pub fn last_over_first(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?.1, points.last()?.1);
    (points.len() > 1 && first != 0.0).then(|| last / first)
}

/// The place at which a curve reaches `y`, on straight lines between its points, scanning from the
/// left; `None` if it never does.
pub fn reaches(points: &[(f64, f64)], y: f64) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        let is_between = (y0 <= y && y <= y1) || (y1 <= y && y <= y0);
        is_between.then(|| if y0 == y1 { x0 } else { x0 + (x1 - x0) * (y - y0) / (y1 - y0) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        let mut all = Rows::default();
        for seed in [1, 2] {
            let mut rows = Rows::default();
            rows.push(row!(device: "SSD", bits: 5.0, gain: 0.1));
            rows.push(row!(device: "SSD", bits: 10.0, gain: 0.3, comparable: false));
            rows.push(row!(device: "NVM", bits: 10.0, gain: f64::NAN));
            rows.note("HDD is left out.");
            all.join(seed, rows);
        }
        all
    }

    #[test]
    fn rows_are_selected_by_their_cells() {
        let rows = rows();
        assert_eq!(rows.columns(), ["seed", "device", "bits", "gain", "comparable"]);
        assert_eq!(rows.notes, ["HDD is left out."]);
        let first = rows.view().of("seed", 1u64);
        assert_eq!(first.0.len(), 3);
        let ssd = first.of("device", "SSD");
        assert_eq!(ssd.points("bits", "gain"), [(5.0, 0.1), (10.0, 0.3)]);
        assert_eq!(ssd.of("bits", 10.0).number("gain"), Some(0.3));
        assert_eq!((ssd.mean("gain"), first.of("device", "NVM").mean("gain")), (Some(0.2), None));
        assert_eq!(first.values("device"), ["SSD", "NVM"]);
        assert_eq!(rows.view().flagged("comparable", false), 2);
    }

    #[test]
    fn shapes_are_reduced_to_numbers() {
        let rising = [(1.0, 1.0), (2.0, 3.0), (3.0, 5.0)];
        assert_eq!((slope(&rising), last_over_first(&rising)), (Some(2.0), Some(5.0)));
        let humped = [(1.0, 1.0), (2.0, 5.0), (3.0, 3.0)];
        assert_eq!(reaches(&humped, 3.0), Some(1.5));
        assert_eq!((slope(&rising[..1]), reaches(&rising, 9.0)), (None, None));
    }

    #[test]
    fn numbers_have_six_digits() {
        for (number, text) in [(0.0, "0"), (1.0 / 3.0, "0.333333"), (1_234_567.8, "1234570"), (1e-7, "1e-7")]
        {
            assert_eq!(Cell::from(number).to_string(), text);
        }
        assert_eq!(
            (Cell::from(f64::NAN).to_string(), Cell::from(7u64).to_string()),
            (String::new(), "7".to_owned())
        );
    }
}
