//! Invariants of every report.

use serde_json::Value;
use sluice_pipeline::Report;

/// A report as JSON.
pub(crate) struct ReportShape(pub(crate) Value);

impl ReportShape {
    pub(crate) fn from_report(report: &Report) -> Self {
        Self(report.to_json())
    }

    /// The report without fields that vary between identical runs.
    pub(crate) fn without_timing(mut self) -> Value {
        let all = self.0.as_object_mut().unwrap();
        // Bytes are read ahead, depending on threads; damage and events are not.
        for key in ["seconds", "bytes_read"] {
            assert!(all.remove(key).is_some(), "{key}");
        }
        self.0
    }

    /// Checks the keys that scripts rely on, and that every event is accounted for.
    pub(crate) fn check(&self) {
        let count = |value: &Value, key: &str| {
            value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
        };
        for key in ["sources", "sinks", "channels", "damage", "files", "seconds", "exit"] {
            assert!(self.0.get(key).is_some(), "{key} is missing");
        }
        for row in self.0["channels"].as_array().unwrap() {
            assert!(row["source"].is_string() && row["channel"].is_string(), "{row}");
            let gone = count(row, "out") + count(row, "filtered") + count(row, "damaged");
            assert_eq!(count(row, "in"), gone, "{row}");
            count(row, "undecoded");
        }
        for (name, sink) in self.0["sinks"].as_object().unwrap() {
            let rows = self.0["channels"].as_array().unwrap().iter();
            let out: u64 =
                rows.filter(|row| row["sink"] == name[..]).map(|row| count(row, "out")).sum();
            assert_eq!(count(sink, "events"), out, "{name}");
        }
        for damage in self.0["damage"].as_array().unwrap() {
            count(damage, "offset");
            count(damage, "length");
            assert!(damage["reason"].is_string(), "{damage}");
        }
        for file in self.0["files"].as_array().unwrap() {
            count(file, "rows");
            count(file, "bytes");
            assert!(file["path"].is_string() && file.get("blake3").is_some(), "{file}");
        }
    }
}
