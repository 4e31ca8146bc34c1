//! What an embedded verb prints, kept for its caller. Runs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sluice_pipeline::run::Stop;

use crate::log::Level;

/// Stops an embedded verb, and receives what it prints.
#[derive(Debug, Default)]
pub struct Embedding {
    /// Stops its runs.
    pub stop: Arc<Stop>,
    output: Mutex<Output>,
}

/// What an embedded verb has printed.
#[derive(Debug, Default)]
pub struct Output {
    /// The text for standard output.
    pub text: String,
    /// The messages for standard error, with the fields of `--log-format json`.
    pub messages: Vec<Value>,
    /// The report of the run, as `--report` writes it.
    pub report: Option<Value>,
}

impl Embedding {
    /// Everything printed since the last call.
    pub fn take_output(&self) -> Output {
        std::mem::take(&mut self.output())
    }

    pub(crate) fn print(&self, text: &str) {
        self.output().text.push_str(text);
    }

    pub(crate) fn add_message(&self, level: Level, kind: &str, text: &str, fields: Value) {
        let mut message = json!({ "level": level.name(), "kind": kind, "message": text });
        if let (Some(all), Value::Object(fields)) = (message.as_object_mut(), fields) {
            all.extend(fields);
        }
        self.output().messages.push(message);
    }

    pub(crate) fn set_report(&self, report: Value) {
        self.output().report = Some(report);
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
