//! The catalogue of a session: which tables there are, by name. Reads no log by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::Result;
use sluice_core::Error;

use super::{Findings, LogTables};
use crate::session::ROOT;

/// Names that mean something else.
const TAKEN: [&str; 2] = [ROOT, "information_schema"];

/// The logs of a session.
#[derive(Debug, Default)]
pub(crate) struct Catalogue(RwLock<BTreeMap<String, Arc<LogTables>>>);

impl Catalogue {
    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, Arc<LogTables>>) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, name: &str, log: Arc<LogTables>) -> std::result::Result<(), Error> {
        if TAKEN.contains(&name) {
            return Err(Error::refused(format!(
                "no log can be called `{name}`: the name is taken"
            )));
        }
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if logs.contains_key(name) {
            return Err(Error::refused(format!(
                "two logs are called `{name}`: name one otherwise"
            )));
        }
        logs.insert(name.to_owned(), log);
        Ok(())
    }

    pub(crate) fn log(&self, name: &str) -> Option<Arc<LogTables>> {
        self.read(|logs| logs.get(name).cloned())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.read(|logs| logs.keys().cloned().collect())
    }

    pub(crate) fn take_findings(&self) -> Findings {
        let mut all = Findings::default();
        self.read(|logs| logs.values().for_each(|log| all.extend(log.findings.take())));
        all
    }
}

impl CatalogProvider for Catalogue {
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.names();
        names.push(ROOT.to_owned());
        names
    }

    fn schema(&self, _name: &str) -> Option<Arc<dyn SchemaProvider>> {
        None
    }
}

/// The schema in which every log is a table.
#[derive(Debug)]
#[expect(dead_code, reason = "tables follow")]
struct Root(Arc<Catalogue>);

#[async_trait]
impl SchemaProvider for Root {
    fn table_names(&self) -> Vec<String> {
        self.0.names()
    }

    async fn table(&self, _name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }

    fn table_exist(&self, _name: &str) -> bool {
        false
    }
}
