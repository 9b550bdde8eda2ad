//! Whether a text is well-formed XML, as far as pictures use it: elements that nest, attributes in quotes, each once, entities that exist.
//!
//! Not here: declarations of types, CDATA, processing instructions, namespaces: a picture with one is refused.

use std::collections::HashSet;

/// What is wrong with `text`, if anything, and at which byte.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut reader = Reader { text, at: 0 };
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    while reader.at < text.len() {
        if open.is_empty() {
            reader.blank();
            if reader.at == text.len() {
                break;
            }
        } else {
            reader.words('<')?;
        }
        reader.want("<")?;
        if reader.takes("!--") {
            reader.until("-->")?;
        } else if reader.takes("/") {
            let name = reader.name()?;
            reader.blank();
            reader.want(">")?;
            let opened = open.pop();
            if opened != Some(name) {
                return Err(reader.wrong(&format!("</{name}> closes {opened:?}")));
            }
        } else {
            let name = reader.name()?;
            roots += usize::from(open.is_empty());
            if !reader.attributes()? {
                open.push(name);
            }
        }
    }
    match (open.last(), roots) {
        (Some(name), _) => Err(reader.wrong(&format!("<{name}> is not closed"))),
        (None, 1) => Ok(()),
        (None, _) => Err(reader.wrong(&format!("{roots} elements at the top"))),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: &str) -> String {
        format!("byte {}: {what}", self.at)
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_there = self.rest().starts_with(token);
        self.at += if is_there { token.len() } else { 0 };
        is_there
    }

    fn want(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(self.wrong(&format!("{token:?} is missing"))) }
    }

    fn until(&mut self, token: &str) -> Result<&'a str, String> {
        let rest = self.rest();
        let end = rest.find(token).ok_or_else(|| self.wrong(&format!("{token:?} is missing")))?;
        self.at += end + token.len();
        Ok(&rest[..end])
    }

    fn blank(&mut self) -> bool {
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start().len();
        self.at += blanks;
        blanks > 0
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let is_in_name = |c: char| c.is_alphanumeric() || "-_:.".contains(c);
        let name = &rest[..rest.find(|c| !is_in_name(c)).unwrap_or(rest.len())];
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err(self.wrong("a name is missing"));
        }
        self.at += name.len();
        Ok(name)
    }

    /// Text up to `end`, which stays.
    fn words(&mut self, end: char) -> Result<(), String> {
        let rest = self.rest();
        let words = &rest[..rest.find(end).ok_or_else(|| self.wrong(&format!("{end:?} is missing")))?];
        for (place, _) in words.match_indices('&') {
            let entity = words[place + 1..].split_once(';').map(|(entity, _)| entity);
            let is_number = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let is_known = entity.is_some_and(|entity| {
                ["amp", "lt", "gt", "quot", "apos"].contains(&entity)
                    || entity.strip_prefix('#').is_some_and(is_number)
            });
            if !is_known {
                return Err(self.wrong(&format!("an entity in {words:?} is none")));
            }
        }
        self.at += words.len();
        Ok(())
    }

    /// The rest of an opening tag; whether it closes itself.
    fn attributes(&mut self) -> Result<bool, String> {
        let mut names = HashSet::new();
        loop {
            let is_apart = self.blank();
            if self.takes("/>") {
                return Ok(true);
            }
            if self.takes(">") {
                return Ok(false);
            }
            let name = self.name()?;
            if !is_apart || !names.insert(name) {
                return Err(self.wrong(&format!("the attribute {name} is not apart, or twice")));
            }
            self.want("=\"")?;
            let begin = self.at;
            self.words('"')?;
            if self.text[begin..self.at].contains('<') {
                return Err(self.wrong(&format!("the attribute {name} has a <")));
            }
            self.want("\"")?;
        }
    }
}

#[test]
fn what_is_well_formed_passes_and_nothing_else() {
    let good = [
        "<svg/>",
        "<svg width=\"8\" height=\"6\">\n<text>a &lt; b &#38; c</text><!-- said --><g><p d=\"M0 0\"/></g></svg>\n",
    ];
    for text in good {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    let bad = [
        "",
        "words",
        "<svg>",
        "<svg/><svg/>",
        "<svg></g>",
        "<a><b></a></b>",
        "<svg>a & b</svg>",
        "<svg>&nbsp;</svg>",
        "<svg a=\"1\" a=\"2\"/>",
        "<svg a=\"1\"b=\"2\"/>",
        "<svg a=1/>",
        "<svg a=\"<\"/>",
        "<svg a=\"1/>",
        "<svg><!-- said </svg>",
        "<1/>",
    ];
    for text in bad {
        assert!(check(text).is_err(), "{text}");
    }
}
