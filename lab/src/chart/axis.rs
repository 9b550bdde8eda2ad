//! Axes: labels, scales and ticks.
//!
//! Drawing uses *places*: the value on a linear axis, its decimal logarithm on a logarithmic axis,
//! and the index of the category on a category axis. All scales are therefore drawn in one linear
//! coordinate system.

use std::ops::Range;

/// Scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic; values of 0 or less cannot be shown.
    Log,
    /// Categories: the values are 0, 1, 2..., one per name.
    Categories(Vec<String>),
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Measured quantity, with its unit.
    pub label: String,
    /// Scale of its values.
    pub scale: Scale,
    /// Minimum range to show; the range is extended to all points.
    pub reach: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, reach: None }
    }

    /// A linear axis that begins at 0.
    pub fn from_zero(label: impl Into<String>) -> Self {
        Self { reach: Some((0.0, 0.0)), ..Self::linear(label) }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, reach: None }
    }

    /// A category axis.
    pub fn categories<S: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = S>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { label: label.into(), scale: Scale::Categories(names), reach: None }
    }

    /// The axis with this minimum range.
    #[must_use]
    pub fn reaching(mut self, least: f64, most: f64) -> Self {
        self.reach = Some((least, most));
        self
    }

    /// Place of a value; `None` if the scale cannot show it.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => value.log10(),
            Scale::Linear | Scale::Categories(_) => value,
        };
        place.is_finite().then_some(place)
    }

    /// Range of places that contains all values.
    pub(crate) fn places(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        if let Scale::Categories(names) = &self.scale {
            return -0.6..names.len().max(1) as f64 - 0.4;
        }
        let reach = self.reach.into_iter().flat_map(|(least, most)| [least, most]);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in values.chain(reach).filter_map(|value| self.place(value)) {
            least = least.min(place);
            most = most.max(place);
        }
        if least > most {
            return 0.0..1.0;
        }
        if most - least < 1e-9 {
            let around = if self.scale == Scale::Log { 0.5 } else { (least.abs() * 0.5).max(0.5) };
            return least - around..most + around;
        }
        let margin = (most - least) * 0.04;
        // An axis that begins at 0 begins there, and not a little below.
        let floor = if self.scale == Scale::Linear && least == 0.0 { 0.0 } else { least - margin };
        floor..most + margin
    }

    /// The places of ticks within `places`, ascending, some six of them.
    pub(crate) fn ticks(&self, places: &Range<f64>) -> Vec<f64> {
        match &self.scale {
            Scale::Categories(names) => (0..names.len()).map(|number| number as f64).collect(),
            Scale::Linear => even_ticks(places),
            Scale::Log => log_ticks(places),
        }
    }

    /// Label of a tick.
    pub(crate) fn tick_label(&self, place: f64) -> String {
        match &self.scale {
            Scale::Categories(names) => names.get(place.round() as usize).cloned().unwrap_or_default(),
            Scale::Linear => short(place),
            Scale::Log => short(10f64.powf(place)),
        }
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn even_ticks(places: &Range<f64>) -> Vec<f64> {
    let raw = (places.end - places.start) / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= raw);
    let step = step.unwrap_or(10.0 * power);
    let first = (places.start / step - 1e-9).ceil();
    let count = ((places.end / step + 1e-9).floor() - first).max(0.0) as usize;
    (0..=count).map(|number| (first + number as f64) * step).collect()
}

/// Powers of ten; where they are few, what lies between them too.
fn log_ticks(places: &Range<f64>) -> Vec<f64> {
    let decades = places.end - places.start;
    let within: &[f64] = match decades {
        d if d < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        d if d < 2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let every = if decades > 8.0 { 2 } else { 1 };
    let mut ticks = Vec::new();
    let mut power = places.start.floor() as i32;
    while f64::from(power) <= places.end {
        if power.rem_euclid(every) == 0 {
            let of_decade = within.iter().map(|times| f64::from(power) + times.log10());
            ticks.extend(of_decade.filter(|place| *place >= places.start && *place <= places.end));
        }
        power += 1;
    }
    ticks
}

/// The shortest text of a number: `0.05`, `1.5k`, `20M`, `3e-6`.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let trimmed = |value: f64, digits: usize| {
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    match size {
        0.0 => "0".to_owned(),
        s if s < 1e-9 => "0".to_owned(),
        s if s < 9.95e-4 => {
            let power = s.log10().floor();
            format!("{}e{power:.0}", trimmed(value / 10f64.powf(power), 1))
        }
        s if s < 0.1 => trimmed(value, 4),
        s if s < 10.0 => trimmed(value, 2),
        s if s < 1e4 => trimmed(value, 1),
        s if s < 1e6 => trimmed(value / 1e3, 1) + "k",
        s if s < 1e9 => trimmed(value / 1e6, 1) + "M",
        _ => trimmed(value / 1e9, 1) + "G",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let axis = Axis::linear("x");
        assert_eq!(axis.ticks(&(0.0..1.04)), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(axis.ticks(&(-3.0..14.4)), [0.0, 5.0, 10.0]);
        for end in [0.003, 0.7, 1.0, 9.0, 123.0, 8e7] {
            let ticks = axis.ticks(&(0.0..end));
            assert!((3..=8).contains(&ticks.len()), "{end}: {ticks:?}");
        }
        let decades = Axis::log("x").ticks(&(-6.1..0.3));
        assert_eq!(decades, [-6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0]);
        let few: Vec<String> = Axis::log("x")
            .ticks(&(0.9..2.1))
            .into_iter()
            .map(|tick| Axis::log("x").tick_label(tick))
            .collect();
        assert_eq!(few, ["10", "20", "50", "100"]);
    }

    #[test]
    fn all_points_and_what_must_be_shown_have_room() {
        let axis = Axis::from_zero("x");
        let places = axis.places([3.0, 5.0].into_iter());
        assert!(places.start == 0.0 && places.end > 5.0, "{places:?}");
        let log = Axis::log("x").places([0.0, 1.0, 100.0].into_iter());
        assert!(log.start < 0.0 && log.end > 2.0, "zero is left out: {log:?}");
        assert_eq!(Axis::linear("x").places(std::iter::empty()), 0.0..1.0);
        let one = Axis::linear("x").places([7.0].into_iter());
        assert!(one.contains(&7.0) && one.start < one.end);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (3e-6, "3e-6"),
            (0.00819, "0.0082"),
            (0.5, "0.5"),
            (12.0, "12"),
            (1500.0, "1500"),
            (25_000.0, "25k"),
            (2.5e6, "2.5M"),
            (-4.0, "-4"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected, "{value}");
        }
    }
}
