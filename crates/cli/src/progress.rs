//! Progress on standard error, where a terminal is watching.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total` steps of something; invisible where standard error is no terminal.
pub fn bar(total: u64, what: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} {what}  {{elapsed}} elapsed, {{eta}} left  {{msg}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style.progress_chars("━╸─"))
}

/// Turns while something is done whose end nobody knows, with a clock that runs.
pub fn spinner(what: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {elapsed}  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = ProgressBar::new_spinner().with_style(style).with_message(what.to_string());
    spinner.enable_steady_tick(std::time::Duration::from_millis(120));
    spinner
}

/// A bar over the bytes of a file that comes in.
pub fn download(total: u64, file: &str) -> ProgressBar {
    let template = "{msg} {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style.progress_chars("━╸─")).with_message(file.to_string())
}
