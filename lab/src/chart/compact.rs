//! Compacts an SVG without changing the picture.
//!
//! The drawing library writes every dash and tick as a separate element, and also attributes that
//! have SVG's default value. Adjacent polylines of one style become one path, default attributes
//! are removed, and fractions of a pixel keep two digits.
//!
//! Invariant: the drawn elements and their order stay the same. A line that is not recognised is
//! kept unchanged.

/// Attributes with SVG's default values.
const DEFAULTS: [&str; 5] = [
    " opacity=\"1\"",
    " stroke=\"none\"",
    " stroke-width=\"1\"",
    " fill=\"#000000\"",
    " text-anchor=\"start\"",
];
const FONT: &str = " font-family=\"sans-serif\"";

/// The compact form of a picture that the library wrote.
pub(super) fn compact(svg: &str) -> String {
    let mut short = String::with_capacity(svg.len());
    // The style of the path that is being written.
    let mut open: Option<String> = None;
    for line in svg.lines() {
        if let Some((style, points)) = polyline(line) {
            if open.as_ref() != Some(&style) {
                close(&mut short, &mut open);
                short.push_str(&format!("<path{style} d=\""));
                open = Some(style);
            }
            short.push('M');
            short.push_str(points);
            continue;
        }
        close(&mut short, &mut open);
        let mut line = line.to_owned();
        if line.starts_with('<') {
            DEFAULTS.iter().for_each(|default| line = line.replace(default, ""));
            line = line.replace(FONT, "");
            line = with_short_fractions(&line);
        }
        // The text of an element stands on lines of its own, whose ends would be spaces.
        let is_inside = line.starts_with("<text") || (!line.starts_with('<') && !line.is_empty());
        if let Some(rest) = line.strip_prefix("<svg") {
            line = format!("<svg{FONT}{rest}");
        }
        short.push_str(&line);
        if !is_inside {
            short.push('\n');
        }
    }
    close(&mut short, &mut open);
    short
}

fn close(short: &mut String, open: &mut Option<String>) {
    if open.take().is_some() {
        short.push_str("\"/>\n");
    }
}

/// The style of a line that is a whole polyline, and its points.
fn polyline(line: &str) -> Option<(String, &str)> {
    let inner = line.strip_prefix("<polyline")?.strip_suffix("\"/>")?;
    let (style, points) = inner.split_once(" points=\"")?;
    let mut style = style.to_owned();
    // A path is filled by default, as a polyline is: `fill="none"` stays.
    DEFAULTS.iter().for_each(|default| style = style.replace(default, ""));
    Some((style, points.trim_end()))
}

/// Numbers in attributes with at most two digits after the point.
fn with_short_fractions(line: &str) -> String {
    let (tag, text) = line.split_once('>').unwrap_or((line, ""));
    let mut short = String::with_capacity(line.len());
    // Digits since a point.
    let mut digits = None;
    for letter in tag.chars() {
        digits = match (letter, digits) {
            ('.', _) => Some(0),
            (letter, Some(seen)) if letter.is_ascii_digit() => Some(seen + 1),
            _ => None,
        };
        if digits.is_none_or(|seen| seen <= 2) {
            short.push(letter);
        }
    }
    if tag.len() < line.len() {
        short.push('>');
        short.push_str(text);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_of_one_style_are_a_path_and_defaults_go() {
        let svg = "<svg width=\"9\" viewBox=\"0 0 9 9\" xmlns=\"x\">\n\
                   <polyline fill=\"none\" opacity=\"1\" stroke=\"#111111\" stroke-width=\"1\" points=\"1,2 3,4 \"/>\n\
                   <polyline fill=\"none\" opacity=\"1\" stroke=\"#111111\" stroke-width=\"1\" points=\"5,6 7,8 \"/>\n\
                   <polyline fill=\"none\" opacity=\"1\" stroke=\"#222222\" stroke-width=\"2\" points=\"5,6 7,8 \"/>\n\
                   <text x=\"1\" dy=\"0.76em\" text-anchor=\"start\" font-family=\"sans-serif\" font-size=\"17.7419\" \
                   opacity=\"1\" fill=\"#000000\">\n0.125 of 1.75\n</text>\n\
                   <circle cx=\"1\" cy=\"2\" r=\"4\" opacity=\"0.25\" fill=\"#5A5A5A\" stroke=\"none\"/>\n\
                   </svg>\n";
        let short = "<svg font-family=\"sans-serif\" width=\"9\" viewBox=\"0 0 9 9\" xmlns=\"x\">\n\
                     <path fill=\"none\" stroke=\"#111111\" d=\"M1,2 3,4M5,6 7,8\"/>\n\
                     <path fill=\"none\" stroke=\"#222222\" stroke-width=\"2\" d=\"M5,6 7,8\"/>\n\
                     <text x=\"1\" dy=\"0.76em\" font-size=\"17.74\">0.125 of 1.75</text>\n\
                     <circle cx=\"1\" cy=\"2\" r=\"4\" opacity=\"0.25\" fill=\"#5A5A5A\"/>\n\
                     </svg>\n";
        assert_eq!(compact(svg), short);
    }
}
