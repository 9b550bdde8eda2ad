//! Text in pictures: as wide as it will be, about, and broken into lines.
//!
//! Fonts of who looks at a picture are not known here; the width of a character is taken as 0.54 of
//! its size, what common sans-serif fonts have on average for English text.

const WIDTH_FOR_SIZE: f64 = 0.54;

/// About how many pixels `text` takes across.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * WIDTH_FOR_SIZE
}

/// Lines of `text` that are no wider than `most` pixels, unless a single word is.
pub(crate) fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + size * WIDTH_FOR_SIZE <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_all_words_within_the_width() {
        let text = "one two three four five six seven eight nine ten";
        let lines = lines(text, 10.0, 100.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line, 10.0) <= 100.0), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(super::lines("unbreakable", 10.0, 5.0), ["unbreakable"]);
        assert!(super::lines("  ", 10.0, 5.0).is_empty());
    }
}
