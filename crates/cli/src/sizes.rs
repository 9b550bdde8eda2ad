//! Sizes in bytes with suffixes, as typed and as printed, and other formatted figures.

/// Suffixes and their factors. A suffix that ends another one comes after it.
const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Parses a size such as `4096`, `64KiB`, `1.5MiB` or `2 GB`.
///
/// # Errors
/// A message that describes the problem.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let (number, factor) = UNITS
        .iter()
        .find_map(|(suffix, factor)| Some((trimmed.strip_suffix(suffix)?.trim_end(), *factor)))
        .unwrap_or((trimmed, 1));
    let bad = || format!("{text:?} is not a size: use a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB");
    let too_large = || format!("{text:?} is too large");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(bad());
    }
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let scale = 10u64.pow(u32::try_from(fraction.len()).map_err(|_| bad())?);
    let fraction: u64 = fraction.parse().map_err(|_| bad())?;
    let part = u128::from(fraction) * u128::from(factor);
    if !part.is_multiple_of(u128::from(scale)) && factor == 1 {
        return Err(format!("{text:?} is not a whole number of bytes"));
    }
    let bytes = u128::from(whole) * u128::from(factor) + part / u128::from(scale);
    u64::try_from(bytes).map_err(|_| too_large())
}

/// Formats a size with two to four significant digits and a binary suffix.
pub fn show_size(bytes: u64) -> String {
    for (suffix, unit) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= unit {
            let value = bytes as f64 / unit as f64;
            return if value < 100.0 {
                format!("{value:.1} {suffix}")
            } else {
                format!("{value:.0} {suffix}")
            };
        }
    }
    format!("{bytes} B")
}

/// Formats a count with digits in groups of three.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: "1 table", "2,000 tables".
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(count), if count == 1 { one } else { many })
}

/// Formats a time in nanoseconds.
pub fn show_ns(ns: f64) -> String {
    if ns < 9_999.5 {
        format!("{ns:.0} ns")
    } else if ns < 9_999_500.0 {
        format!("{:.1} us", ns / 1e3)
    } else if ns < 9.9995e9 {
        format!("{:.1} ms", ns / 1e6)
    } else {
        format!("{:.1} s", ns / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_every_suffix() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("12B", 12),
            ("64KiB", 65_536),
            ("1MiB", 1 << 20),
            ("1.5MiB", 3 << 19),
            ("2 GiB", 2 << 30),
            ("1TiB", 1 << 40),
            ("3kB", 3_000),
            ("3KB", 3_000),
            ("5MB", 5_000_000),
            ("1.25GB", 1_250_000_000),
            ("1TB", 1_000_000_000_000),
            ("18446744073709551615", u64::MAX),
            ("4.0", 4),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "MiB", "-1", "1e3", "1.", ".5MiB", "1.5", "1 M", "12x", "1.5.5KiB", "١KiB", "1kb"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("18446744073709551616").is_err_and(|message| message.contains("too large")));
        assert!(parse_size("99999999999TiB").is_err_and(|message| message.contains("too large")));
    }

    #[test]
    fn shown_for_people() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(200 << 20), "200 MiB");
        assert_eq!(show_size(u64::MAX), "16777216 TiB");
        for (count, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(show_count(count), shown);
        }
        for (count, shown) in [(0, "0 entries"), (1, "1 entry"), (2000, "2,000 entries")] {
            assert_eq!(counted(count, "entry", "entries"), shown);
        }
        for (ns, shown) in
            [(0.4, "0 ns"), (812.0, "812 ns"), (12_345.0, "12.3 us"), (4e7, "40.0 ms"), (6e10, "60.0 s")]
        {
            assert_eq!(show_ns(ns), shown);
        }
    }
}
