//! Renders Markdown pages as one HTML page, for light and dark themes and narrow screens.

use pulldown_cmark::{Options, Parser, html};

use super::MARK;

/// Wide pictures keep a legible width and scroll separately.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 sans-serif;max-width:980px;margin:1em auto;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse;display:block;overflow-x:auto}\
td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left}\
.picture{overflow-x:auto}.picture img{min-width:640px;max-width:100%;height:auto}\
h1{border-top:2px solid #888;padding-top:.5em;margin-top:2em}h2{margin-top:2.5em}code{overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181c}a{color:#8ab4f8}td,th{border-color:#444}}";

/// The pages in sequence. Links between them become links within the page.
pub(super) fn page<'a>(pages: impl Iterator<Item = &'a str>) -> String {
    let mut body = String::new();
    for text in pages {
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
        html::push_html(&mut body, parser);
    }
    let body =
        body.replace("<p><img ", "<p class=\"picture\"><img ").replace("href=\"README.md\"", "href=\"#\"");
    let body = crate::Paper::ALL.iter().fold(body, |body, paper| {
        body.replace(&format!("href=\"{}.md#", paper.slug()), "href=\"#")
            .replace(&format!("href=\"{}.md\"", paper.slug()), &format!("href=\"#{}\"", paper.slug()))
            .replace(
                &format!("<h1>{}</h1>", paper.name()),
                &format!("<h1 id=\"{}\">{}</h1>", paper.slug(), paper.name()),
            )
    });
    format!(
        "<!doctype html>\n{MARK}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>The papers&#39; experiments</title>\n<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
}
