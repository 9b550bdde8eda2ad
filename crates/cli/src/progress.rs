//! Progress bar on standard error, only on a terminal, removed at the end.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `total` steps, or a spinner if the total is unknown.
pub fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    let template = match total {
        Some(_) => "{msg} [{bar:30}] {human_pos}/{human_len} {eta}",
        None => "{spinner} {msg} {human_pos}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
