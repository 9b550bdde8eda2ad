//! Lengths of time, as typed: `250ms`, `30s`, `5m`, `2h`, `7d`, or `ever`.

use std::time::Duration;

/// Units and their milliseconds. A unit that ends another one comes after it.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a length of time; `ever` is the longest one.
///
/// # Errors
/// A message that describes the problem.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "ever" {
        return Ok(Duration::MAX);
    }
    let bad = || format!("{text:?} is no length of time: use a whole number with ms, s, m, h or d, or ever");
    let found = UNITS.iter().find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, *ms)));
    let (number, unit_ms) = found.ok_or_else(bad)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
    ms.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is too long; ever is without end"))
}

/// Formats a length of time as it is typed.
pub fn show_duration(time: Duration) -> String {
    let ms = time.as_millis();
    let is_whole = |(_, unit_ms): &&(&str, u64)| ms > 0 && ms.is_multiple_of(u128::from(*unit_ms));
    let (unit, unit_ms) = UNITS.iter().rev().find(is_whole).unwrap_or(&UNITS[0]);
    format!("{}{unit}", ms / u128::from(*unit_ms))
}

/// A length of time as it can be typed, in milliseconds.
pub fn print_duration(time: Duration) -> String {
    if time == Duration::MAX { "ever".to_owned() } else { format!("{}ms", time.as_millis()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_unit() {
        for (text, ms) in [
            ("0ms", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(ms)), text);
        }
        assert_eq!(parse_duration("ever"), Ok(Duration::MAX));
        for time in [Duration::ZERO, Duration::from_millis(29_500), Duration::MAX] {
            assert_eq!(parse_duration(&print_duration(time)), Ok(time));
        }
        for bad in
            ["", "5", "s", "-1s", "1.5h", "1 s", "5min", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
