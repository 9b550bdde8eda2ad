//! Text in pictures: estimated width and line breaks.
//!
//! The viewer's font is unknown; the width of a character is estimated as 0.54 of its size, the
//! mean of common sans-serif fonts for English text.

const WIDTH_FOR_SIZE: f64 = 0.54;

/// Estimated width of `text` in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * WIDTH_FOR_SIZE
}

/// Breaks `text` into lines of at most `most` pixels; a longer word is kept whole.
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
