//! Metrics as a Prometheus text file, which is replaced as a whole.
//!
//! The text is written by hand, since prometheus-client writes OpenMetrics, whose `# TYPE` lines for counters lack the
//! suffix `_total`, so that the textfile collector would take counters for untyped. Source: the Prometheus text
//! exposition format, version 0.0.4; the node exporter's textfile collector.

use std::fmt::Write as _;
use std::path::Path;

use crate::migrate::own_file;
use crate::{Error, Result};

/// The text of a file, metric by metric.
#[derive(Debug)]
pub struct Text {
    /// What every metric's name begins with.
    prefix: &'static str,
    text: String,
}

impl Text {
    /// Without metrics yet. Every metric's name will begin with the prefix.
    pub fn new(prefix: &'static str) -> Text {
        Text { prefix, text: String::new() }
    }

    /// Adds a metric without labels.
    pub fn one(&mut self, name: &str, help: &str, value: f64) {
        self.many(name, help, [(String::new(), value)]);
    }

    /// Adds a metric with a value for each of the labels, as `vcpu="1"`. A name that ends with `_total` is a counter's.
    pub fn many(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let name = format!("{}{name}", self.prefix);
        // Writing to a string does not fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in values {
            let _ = match labels.is_empty() {
                true => writeln!(self.text, "{name} {value}"),
                false => writeln!(self.text, "{name}{{{labels}}} {value}"),
            };
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Replaces the file by it.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NotPermitted`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let refused = |e| Error::io("write", path, e, "name another file with --metrics");
        own_file::replace(path, &self.text).map_err(refused)
    }
}

/// A text as a label's value: quotes, backslashes and newlines are escaped.
pub fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stays_within_its_quotes() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        let mut text = Text::new("x_");
        text.many("seen_total", "Seen.", [("guest=\"w\"".to_string(), 2.0)]);
        assert_eq!(
            text.as_str(),
            "# HELP x_seen_total Seen.\n# TYPE x_seen_total counter\nx_seen_total{guest=\"w\"} 2\n"
        );
    }
}
